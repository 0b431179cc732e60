"""Where the files of each data set are had: a local folder, a public address, a package on the Python index.

A file is asked for by its role (`train`, `graph`, ..); what it is called, and its bytes, differ from mirror to mirror,
so each mirror has its own sha256. A file that nobody could hash yet has None in its place: it is taken on trust when it
is first downloaded, pinned from then on, and said to be unverified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Item(NamedTuple):
    """A file in a mirror: its path there, and its sha256 if that is known."""

    path: str
    sha256: str | None


class Archive(NamedTuple):
    """An archive that holds files of a data set.

    Fields:
        file: its name, also where a copy of it lies in a local folder.
        sha256: of the whole archive, if known.
        items: the files in it by role, their paths being those of its members.
        address: where it is published; or
        project: the package on the Python index whose file it is.
    """

    file: str
    sha256: str | None
    items: Mapping[str, Item]
    address: str = ""
    project: str = ""


class Files(NamedTuple):
    """The files of a data set.

    Fields:
        required, optional: the roles; a mirror must have all of the first, and may have some of the second.
        folder: where they lie below a local folder.
        local: the files there by role, where they are not in an archive.
        archives: the mirrors, in the order in which they are tried.
        limit_mib: no mirror of these files is larger, packed or unpacked; more is refused.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    folder: str
    local: Mapping[str, Item]
    archives: tuple[Archive, ...] = ()
    limit_mib: int = 256

    def known(self, role: str) -> set[str | None]:
        """Every sha256 that some mirror's file of this role has; None is among them if one of them is not known."""
        mirrors = [self.local, *(archive.items for archive in self.archives)]
        return {mirror[role].sha256 for mirror in mirrors if role in mirror}


def _items(pattern: str, hashes: Mapping[str, str | None]) -> dict[str, Item]:
    """Files whose paths differ in their role only, which stands for {} in the pattern."""
    return {role: Item(pattern.format(role), sha256) for role, sha256 in hashes.items()}


_SPLITS = ("train", "valid", "test")
_NAMES = ("entities", "relations")

_NEURALKG = ("neuralkg-1.0.18.tar.gz", "6a6a9b902749da31fc7f93e6b1a1f72115b271a06092a2d133a785644f19f5df")
_PYRDF2VEC = ("pyRDF2Vec-0.0.3.tar.gz", "72efd79b6086daf605368c5ab11b2a0d306ba13f23e49cd9de796419b7464f77")
_PYKEEN = ("pykeen-1.11.1-py3-none-any.whl", "b6cc0ab012fc6ba4f37b58fb7081a409a5c1f04cbbb0e0e9c2256e911757d4ba")
_GRAKEL = (  # only its data is read, so any machine can use this one wheel
    "grakel-0.1.11-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "f05f03c1ca23919bbb1e9d9132de4e1791e004cdd284a7e98d2897ac8495f0a7",
)

_AUTHORS = "https://github.com/malllabiisc/CompGCN/raw/master/data_compressed"
_DGL = "https://data.dgl.ai/dataset"
_TU = "https://www.chrsmrrs.com/graphkerneldatasets"

_FB15K_237_CRLF = {
    "train": "6e4c2782169af21e9743f3b1d200886f5d595bf6bc504ec1351720949c5cdfae",
    "valid": "cf6309010852f6a8d47a45df830a426415d1ee6f7a3970a8376ff1fb81db4a5c",
    "test": "5711cf41623ceb4eacc50eb6108a3ca6565c7492e3caaf82a3e355cc660d1574",
}
_FB15K_237_LF = {
    "train": "61099230e4439f90885ca9767739e31e8e32f54736fa1c35952b27997bc7c08a",
    "valid": "749cbe9d923bac7b9354da5614ecfed2e0220256d442c3e04a6b303db1f273d9",
    "test": "e2e35e8e6113de220140b6f44dc71a5207b0fc6872d575e874aefe13259b655b",
}
_WN18RR = {
    "train": "038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df",
    "valid": "453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab",
    "test": "0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5",
}


def _paper_triples(
    folder: str,
    sha256: str,
    zipped: Mapping[str, str],
    in_package: str,
    packaged: Mapping[str, str],
    names: dict[str, Item],
) -> Files:
    """FB15k-237 or WN18RR: the authors' zip, or the sdist that holds the same triples in the same order."""
    return Files(
        required=_SPLITS,
        optional=_NAMES,
        folder=folder,
        local=names,
        archives=(
            Archive(
                f"{folder}.zip",
                sha256,
                _items(f"{folder}/{{}}.txt", zipped),
                address=f"{_AUTHORS}/{folder}.zip",
            ),
            Archive(
                *_NEURALKG,
                _items(f"neuralkg-1.0.18/dataset/{in_package}/{{}}.txt", packaged),
                project="neuralkg",
            ),
        ),
    )


def _small(folder: str, train: str, valid: str, test: str) -> Files:
    """One of the small graphs, which come with a wheel."""
    hashes = dict(zip(_SPLITS, (train, valid, test), strict=True))
    wheel = Archive(*_PYKEEN, _items(f"pykeen/datasets/{folder}/{{}}.txt", hashes), project="pykeen")
    return Files(_SPLITS, (), f"small-kg/{folder}", _items("{}.txt", hashes), (wheel,), limit_mib=64)


def _nodes(name: str, folder: str, local: Mapping[str, str] | None = None, packages: tuple[Archive, ...] = ()) -> Files:
    """A graph to classify the nodes of, as R-GCN's authors prepared it: N-Triples and a table for each split."""
    paths = {
        "graph": f"{name}_stripped.nt.gz",
        "train": "trainingSet.tsv",
        "test": "testSet.tsv",
        "labels": "completeDataset.tsv",
    }
    published = Archive(
        f"{name}.tgz", None, {role: Item(path, None) for role, path in paths.items()}, address=f"{_DGL}/{name}.tgz"
    )
    return Files(
        required=("graph", "train", "test"),
        optional=("labels",),
        folder=folder,
        local={role: Item(path, (local or {}).get(role)) for role, path in paths.items()},
        archives=(published, *packages),
        limit_mib=2048,
    )


def _molecules(name: str, folder: str, hashes: Mapping[str, str], packages: tuple[Archive, ...] = ()) -> Files:
    """Graphs to classify, in the format of the TU collection."""
    return Files(
        required=tuple(hashes),
        optional=(),
        folder=folder,
        local=_items(f"{name}_{{}}.txt", hashes),
        archives=(
            Archive(f"{name}.zip", None, _items(f"{name}/{name}_{{}}.txt", hashes), address=f"{_TU}/{name}.zip"),
            *packages,
        ),
        limit_mib=64,
    )


_MUTAG_SPLITS = {
    "train": "d2fe71b68bb25735465128b4aed50d9b165fa5ab92aa2e221fad3d1cd87b7297",
    "test": "20e69309a037cbf0fb2b52be3eaa6c43888215cbc0b96e8f8bd9e2af55652a3f",
}
_MUTAG_MOLECULES = {
    "A": "d9656ca7493f3445d737c711710bb36fd432dddd1c0ea32e1d4713c86ebd28e2",
    "edge_labels": "4669ce755075ff86c3240709345745886400908fa637a49310459b9c267b3e56",
    "graph_indicator": "7d520a4d6c7961c0cdeabe076d8fe27e795b6d373485c9a2b744987e560a2056",
    "graph_labels": "a1518ea39ba3426bd42f57396b9c4baffe68e9adc718caeeab0119c6591a5f2c",
    "node_labels": "678f429965490e84dd27713017538c995fc05d1621beac910848b600015ee863",
}

FILES: dict[str, Files] = {
    "fb15k-237": _paper_triples(
        "FB15k-237",
        "1d897ef464a2e79a2bbf3c4f6cf771d9ce44b53cc8409836ba9c574fde1401b3",
        _FB15K_237_CRLF,
        "FB15K237",
        _FB15K_237_LF,
        {
            "entities": Item("entity2text.txt", "16beedcfad3d32696e8b0b98cfa0f5eeb144f5142225f227a64fd9ce37447da5"),
            "relations": Item("relation2text.txt", "4bf7cb6ea0ac09b17ad210889f723be5e079669f6ae5d507787e1320bbaa0f72"),
        },
    ),
    "wn18rr": _paper_triples(
        "WN18RR",
        "699d45542a94c94ae95726546a65009270358642fcb6b39217baabe9bc1720bf",
        _WN18RR,
        "WN18RR",
        _WN18RR,
        {
            "entities": Item(
                "entity2wordnet.tsv.gz", "3211f421f4552c934622eee57294bfbdee9090bc7aad893ef7552a5a27c72237"
            ),
            "relations": Item("relation2text.txt", "91b1de5585d686ed31498d50f1c4eed44ba9486dffbbcc0c28927ac884184918"),
        },
    ),
    "nations": _small(
        "nations",
        "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57",
        "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530",
        "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab",
    ),
    "umls": _small(
        "umls",
        "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
        "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
        "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
    ),
    "kinship": _small(
        "kinships",
        "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
        "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
        "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
    ),
    "mutag": _nodes(
        "mutag",
        "MUTAG-node",
        {
            "graph": "871f24a766fd377f0adf995f50aea70fd03e4997c6051b3abff3384c08e56ac7",
            "labels": "d81b169a2f3d88b750dd5717062b58f2088fedda1b806e8d5f74373407933e71",
            **_MUTAG_SPLITS,
        },
        (
            Archive(  # this graph, in RDF/XML, still holds the relation that gives the labels away
                *_PYRDF2VEC,
                {
                    "graph": Item(
                        "pyRDF2Vec-0.0.3/data/mutag.owl",
                        "5539358c2d4917ef242e83b84c30abdcf22ce008548c621f30d0f7d86064f7aa",
                    ),
                    **_items("pyRDF2Vec-0.0.3/data/MUTAG_{}.tsv", _MUTAG_SPLITS),
                },
                project="pyRDF2Vec",
            ),
        ),
    ),
    "am": _nodes(
        "am",
        "AM",
        {
            "train": "cac5fc3e54727bbbbc0172e046ecba4f55c751bdd6ade48425db35c8e2897d0f",
            "test": "82450927b13022708d539b02cb50b6613d1826991cea6062ec3a0a112fb9aa73",
            "labels": "75edfce424d2a9e481580fb0979152134cd645aeaaf88b8c24e050100f11c5d2",
        },
    ),
    "am-partial": Files(
        required=("graph", "train", "test"),
        optional=("labels",),
        folder="AM",
        local={
            "graph": Item(
                "am_rebuilt_stripped.nt.gz", "1e965d72bf22288ba79a9cd99ee16a0502d1fe0ee6ebe964794cd0df813ae5cc"
            ),
            "train": Item(
                "trainingSet_present.tsv", "ce0d4874f793637e63a83c3e9406135844c63b9d9b1cf04179ff54e2dd2c80de"
            ),
            "test": Item("testSet_present.tsv", "a5afcbcd464a63ad8aae78badb0c8b4603dde8c18a9001b78ba35bea0d18f596"),
            "labels": Item("completeDataset.tsv", "75edfce424d2a9e481580fb0979152134cd645aeaaf88b8c24e050100f11c5d2"),
        },
    ),
    "aifb": _nodes("aifb", "AIFB"),
    "bgs": _nodes("bgs", "BGS"),
    "mutag-graph": _molecules(
        "MUTAG",
        "MUTAG-graph",
        _MUTAG_MOLECULES,
        (Archive(*_GRAKEL, _items("grakel/tests/data/MUTAG/MUTAG_{}.txt", _MUTAG_MOLECULES), project="grakel"),),
    ),
    "ptc": _molecules(
        "PTC_MR",
        "PTC_MR-graph",
        {
            "A": "f79523ff94dfbef539e5602a8ac1931a50a2800f33fa1d30e5e31725289b5202",
            "edge_labels": "acee2f93b52175a329009dc837bea9db7c2a121c2ef0b1587b38bbe6fc9b8177",
            "graph_indicator": "d52754f3cbc54e29324f884b4c17200c16e06db0c499afae300b4fa1bb6d794b",
            "graph_labels": "64210accbe4c6c027535b1294e0da652b1f539667f7a2d4bf5121dcd8b00a224",
            "node_labels": "cc50d1e1c5f4c98b2100cf50c5ddd88ff28b419a9180d531046b75ce22983235",
        },
    ),
}
