"""For tests of code that delegates: a model whose replies you write, so that no key and no network are needed.

    from delegate import Delegator
    from delegate.testing import Scripted, judge_reply

    model = Scripted([
        Scripted.call("write_file", path="a.txt", content="hello"),  # the child calls a tool
        "I wrote a.txt.",  # the child's report
        judge_reply(c1=("met", "hello")),  # the judge's answer on criterion c1, with its quote
    ])
    delegator = Delegator(client=model)

Only the words are scripted: tools, files, checks, the search for the judge's quote and the verdict are real.
"""

import json

from delegate.models.providers.scripted import Scripted
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatReply, ChatRequest

__all__ = ["ChatReply", "ChatRequest", "ProviderError", "Scripted", "judge_reply"]


def judge_reply(**answers: tuple[str, str]) -> str:
    """Write a judge's reply: for each criterion id a verdict and a quote, as in `judge_reply(c1=("met", "12 rows"))`.

    The verdict is `met`, `not_met` or `cannot_tell`. A reply has to answer every criterion that the judge is asked
    about and no other, or it is `judge_unparseable`. A `met` whose quote isn't in the evidence is `evidence_not_found`.
    """
    given = [
        {"id": id, "source": "", "evidence": quote, "reason": f"The judge says {verdict}.", "verdict": verdict}
        for id, (verdict, quote) in answers.items()
    ]
    return json.dumps({"answers": given})
