"""Writes `judges/months.json`: the names of months in all languages of the Unicode CLDR, as the package babel has them.

    pip install 'babel==2.18.0' && python -m scripts.write_months

Names are folded as `delegate.judging.proof.literals` folds texts. A name can stand for different months in different
languages.
"""

import importlib
import json
from pathlib import Path
from typing import Any

from delegate.judging.proof.literals import fold


def main() -> None:
    babel: Any = importlib.import_module("babel")
    locales: Any = importlib.import_module("babel.localedata")
    months: dict[int, set[str]] = {number: set() for number in range(1, 13)}
    for identifier in locales.locale_identifiers():
        if "_" in identifier:  # a territory or a script of a language: nearly always the same names
            continue
        for forms in babel.Locale.parse(identifier).months.values():
            for width in ("wide", "abbreviated"):
                for number, name in forms.get(width, {}).items():
                    word = fold(name).rstrip(".")
                    if len(word) >= 3 and word.isalpha():
                        months.setdefault(number, set()).add(word)
    table = {str(number): " ".join(sorted(names)) for number, names in sorted(months.items()) if number <= 12}
    text = json.dumps(table, ensure_ascii=False, indent=1)
    (Path(__file__).parents[1] / "judges" / "months.json").write_text(text + "\n", encoding="utf-8")
    print(f"{sum(map(len, months.values()))} names")


if __name__ == "__main__":
    main()
