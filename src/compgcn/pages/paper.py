"""Where the paper says something, as a reader of the printed paper finds it."""

from __future__ import annotations

import re

PLACES = {  # labels in its source -> what they are printed as
    "tbl:gcn_model_comp": "Table 1",
    "tbl:reduction": "Table 2",
    "tbl:link_pred": "Table 3",
    "tbl:link_pred_results": "Table 4",
    "tbl:nodeclass_results": "Table 5",
    "tbl:results_rel_cat": "Table 6",
    "table:rgcn_data": "Table 7",
    "fig:basis_plot": "Figure 3",
    "fig:rgcn_compare": "Figure 4",
    "fig:scale_plot": "Figure 5",
    "sec:results_gcn_encoder": "Section 6.2",
    "sec:results_basis": "Section 6.3",
    "sec:res_node_nmt": "Section 6.4",
    "sec:results_rel_cat": "Appendix A.1",
    "sec:hyperparams": "Appendix A.3",
    "eqn:main_upd": "the update equation",
}
_LABEL = re.compile(r"\b(?:tbl|table|fig|sec|eqn):\w+")


def placed(source: str) -> str:
    """A source with the places that its labels are."""
    return _LABEL.sub(lambda match: PLACES.get(match[0], match[0]), source)
