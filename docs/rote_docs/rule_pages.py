"""The rules as text: one page of Markdown for each topic, and one for all, in ``docs/rules``."""

from __future__ import annotations

from pathlib import Path

from rote.hazards.rules import RULES, Finder, Rule, Topic

FOLDER = Path(__file__).resolve().parents[1] / "rules"


def rule_text(rule: Rule) -> str:
    """One rule as Markdown, under a second-level heading."""
    about = rule.documentation
    parts = [
        f"## {rule.code}: {rule.title} {{#{rule.code.lower()}}}",
        about.what,
        f"**Severity:** {rule.severity}. **Found by:** {', '.join(rule.finders)}.",
        f"**Why it matters.** {about.why}",
        f"**What to write instead.** {about.remedy}",
        *([f"**Tried.** {about.tried}"] if about.tried else []),
        f"**Known limits.** {about.limits}",
        *([f"**Why no check finds it.** {about.unchecked}"] if about.unchecked else []),
        f"Instead of\n\n```python\n{about.bad}\n```\n\nwrite\n\n```python\n{about.good}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def topic_page(topic: Topic) -> str:
    """The page of a topic."""
    rules = [rule for rule in RULES.values() if rule.topic is topic]
    title = topic.value[0].upper() + topic.value[1:]
    listed = "\n".join(f"- [{rule.code}](#{rule.code.lower()}): {rule.title}" for rule in rules)
    return f"# {title}\n\n{listed}\n\n" + "\n".join(rule_text(rule) for rule in rules)


def index_page() -> str:
    """The page that lists all rules, from the template ``rules_index.md``."""
    rows = "\n".join(
        f"| [{rule.code}]({rule.topic.page}.md#{rule.code.lower()}) | {rule.title} | {rule.severity} "
        f"| {' '.join((finder.name or '')[:1] for finder in Finder if finder in rule.found_by)} |"
        for rule in RULES.values()
    )
    groups = ", ".join(f"[{topic.value}]({topic.page}.md)" for topic in Topic)
    text = Path(__file__).with_name("rules_index.md").read_text(encoding="utf-8")
    return text.format(number=len(RULES), groups=groups, rows=rows)


def pages() -> dict[str, str]:
    """All pages by file name."""
    return {"index.md": index_page(), **{f"{topic.page}.md": topic_page(topic) for topic in Topic}}
