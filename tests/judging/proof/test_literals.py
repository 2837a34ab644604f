"""Literals are found however they are written, and only as a whole."""

import pytest

from delegate.judging.proof.literals import literals_in, stands_in

IN = """
2026-05-03 | am 3. Mai 2026
2026-05-03 | May 3rd, 2026
2026-05-03 | 2026-05-03T10:30:00-05:00
2026-05-03 | 03.05.2026
17.05.2024 | 2024-05-17
6 juin 1970 | {"dob": "1970-06-06"}
3 мая 2026 | 2026-05-03
2024年5月25日 | 2024-05-25
2026년 5월 3일 | 2026-05-03
20 May | 2024-05-20
10:30 | 2026-05-03T10:30:00-05:00
14:00 | at 2 p.m. today
2 PM | 14:00
14 h | 2024-05-20T14:00:00
9:00 | 09:00
1500 | total: $1,500.00
1.500,00 € | 1500
128 $ | amount 128
$50 | 50.00
€2.50 | 2.5
12 | {'id': 12, 'x': 1}
rec_12 | "record": "rec_12"
bob@x.com | to bob@x.com.
HAT136 | flight hat136
Müller | MULLER
Ana Ruiz | "ana  ruiz"
株式会社 | 山田株式会社です
ＡＢＣ１２ | abc12
30 | 30min
1.20 | {"amount": "1.2"}
reports/a.csv | /work/reports/a.csv
A7 | order A7, and A8
50,000 | 50000.00
12,5 | 12.500
1 234,50 zł | 1234.5
#311 | ids\\n311\\n318
318 | acme/shop#318
-50 | {"amount": -50}
30 kg | 30kg
50 | €50
""".strip().splitlines()
NOT_IN = """
50 | 50.25
12 | 12-99
12 | 12.5
60 | 1600
rec_1 | rec_12
rec_12 | xrec_12
bob@x.com | bob@x.com.evil.org
bob@x.com | jimbob@x.com
2024-05-20 | 2024-05-21
2026-05-03 | 2025-05-03
10:30 | 10:45
2 PM | 02:00
12 May | 12 bags
3 | 2026-03-01
Ana Ruiz | Ana Maria Ruiz
4 | v14
W23 | W2378156
A7-B | A7-B-2
checkout | checkout-admin
reports/a.csv | reports/a.csv.bak
50 | 50,000
50,000 | 50
50 | -50
50 | -$50
-50 | 50
12 | 12abc
12 | 12b
A7 | A7#2
A7 | A7\u200b1
A-7 | 7
""".strip().splitlines()


@pytest.mark.parametrize("line", IN)
def test_a_literal_is_found_in_any_of_its_forms(line: str) -> None:
    literal, text = line.replace("\\n", "\n").split(" | ")
    assert stands_in(literal, text)


@pytest.mark.parametrize("line", NOT_IN)
def test_another_one_that_contains_it_is_not_taken_for_it(line: str) -> None:
    literal, text = line.split(" | ")
    assert not stands_in(literal, text)


def test_without_a_reader_literals_are_what_no_language_is_needed_for() -> None:
    text = (
        "Bestellung W2378156 kostet $50.25, an bob@x.com, „Ana Ruiz“ und yusuf_rossi_9620; siehe https://a.example/x."
    )
    found = literals_in(text)
    assert {"W2378156", "50.25", "bob@x.com", "Ana Ruiz", "yusuf_rossi_9620"} <= set(found)
    assert not {"Bestellung", "kostet", "siehe"} & set(found)
