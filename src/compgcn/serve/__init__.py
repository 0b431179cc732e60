"""HTTP server: a FastAPI application that answers from run folders, and the page that explores them."""
