"""The list of rules. A rule is a function from a Tree to findings, with examples beside it that show it can fail.

    @rule("name", bad=[{path: text}, ...], good=[{path: text}, ...])
    def name(tree):
        '''What the rule says, one line.'''
        yield Finding(path, line, "what is wrong and what to do")

A rule without a bad example does not register: a check that cannot fail is a defect.
"""

RULES = {}


class Rule:
    def __init__(self, name, check, bad, good):
        self.name = name
        self.check = check
        self.bad = bad
        self.good = good

    def says(self):
        return (self.check.__doc__ or "").strip().split("\n")[0]


def rule(name, bad, good=()):
    if not bad:
        raise ValueError(f"rule {name} has no example that it should catch")

    def register(check):
        if name in RULES:
            raise ValueError(f"two rules are called {name}")
        RULES[name] = Rule(name, check, list(bad), list(good))
        return check
    return register
