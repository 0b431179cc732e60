"""The page, its files, and a plain description of the interface; nothing comes from another server."""

from __future__ import annotations

import importlib.util
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

PAGE = Path(__file__).parent / "page"


def static_files() -> dict[str, Path]:
    """What is served under /static/: the files of the page, and plotly's script from its package."""
    found = {path.name: path for path in sorted(PAGE.glob("*")) if path.is_file() and path.suffix != ".py"}
    spec = importlib.util.find_spec("plotly")
    if spec is not None and spec.origin is not None:
        script = Path(spec.origin).parent / "package_data" / "plotly.min.js"
        if script.is_file():
            found[script.name] = script
    return found


def add_documents(app: FastAPI) -> None:
    """The routes of the page and of the description."""
    files = static_files()

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        if "index.html" in files:
            return FileResponse(files["index.html"], headers={"Cache-Control": "no-cache"})
        return PlainTextResponse("compgcn is serving; the interface is described at /docs\n")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in files:  # only what was there at the start: no path can lead out
            raise HTTPException(404, "there is no such file")
        return FileResponse(files[name], headers={"Cache-Control": "max-age=3600" if "plotly" in name else "no-cache"})

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(described(app.openapi()))


def describe_key(app: FastAPI) -> None:
    """Say in the schema that everything but /health takes a key."""
    schema = app.openapi()
    schema.setdefault("components", {})["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            if path != "/health":
                operation["security"] = [{"bearer": []}, {"header": []}]
    app.openapi_schema = schema


def described(schema: dict[str, Any]) -> str:
    """The schema as a page to read."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(schema['info']['title'])}</title>"
        "<meta name=viewport content='width=device-width'>"
        "<style>body{font-family:system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem;line-height:1.4}"
        "td,th{text-align:left;padding:.1rem 1rem .1rem 0;vertical-align:top}code{font-size:1rem}</style>",
        f"<h1>{escape(schema['info']['title'])} {escape(schema['info']['version'])}</h1>",
        f"<p>{escape(schema['info']['description'])} The whole schema: <a href=/openapi.json>openapi.json</a>.</p>",
    ]
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(operation.get('description', ''))}</p>")
            parts.append(_table("parameter", _inputs(operation, schema)))
            answers = {status: row.get("description", "") for status, row in operation["responses"].items()}
            parts.append(_table("status", list(answers.items())))
    return "".join(parts)


def _inputs(operation: dict[str, Any], schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Parameters, or the fields of the body, and what is said of each."""
    rows = [(row["name"], row.get("description", "")) for row in operation.get("parameters", ())]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in body:
        shape = schema["components"]["schemas"][body["$ref"].rpartition("/")[2]]
        rows += [(name, field.get("description", "")) for name, field in shape["properties"].items()]
    return rows


def _table(heading: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    cells = "".join(f"<tr><td><code>{escape(name)}</code><td>{escape(what)}" for name, what in rows)
    return f"<table><tr><th>{heading}<th>meaning{cells}</table>"
