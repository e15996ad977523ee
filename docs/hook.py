"""What happens to a page between Markdown and HTML.

- ``<!-- insert: NAME -->`` is replaced by what the generator of that name makes (:data:`INSERTS`).
- A rule code in prose becomes a link to the page of the rules.
- A link to a file of the repository that is no page becomes the name of that file.
- Sphinx roles of docstrings (``:class:`~rote.Options```) become links into the reference.
- A page that would fetch anything from the network is an error (a warning, and the site is built strictly).
"""

from __future__ import annotations

import logging
import posixpath
import re
from functools import partial
from typing import Any

from markdown.extensions.toc import slugify
from rote_docs import (
    benchmarks,
    commands,
    launches,
    limits,
    options,
    overwritten,
    readme,
    reference,
    rules,
    states,
)

import rote
import rote.integrations.lerobot
import rote.integrations.openpi
import rote.quant
import rote.testing

log = logging.getLogger("mkdocs.hooks.rote")

INSERTS = {
    "readme-two-commands": partial(readme.section, "Two commands"),
    "readme-how-it-stands": partial(readme.section, "How it stands"),
    "launches": launches.caption,
    "readme-an-example": partial(readme.section, "An example"),
    "transitions": states.table,
    "options": options.sections,
    "report": options.reports,
    "rules": rules.sections,
    "limits": limits.limits,
    "gaps": limits.gaps,
    "differences": limits.differences,
    "benchmarks": benchmarks.tables,
    "fuzz": benchmarks.fuzzing,
    "overwritten": overwritten.results,
    "reference-rote": partial(reference.listed, rote),
    "reference-testing": partial(reference.listed, rote.testing),
    "reference-quant": partial(reference.listed, rote.quant),
    "reference-lerobot": partial(reference.listed, rote.integrations.lerobot),
    "reference-openpi": partial(reference.listed, rote.integrations.openpi),
    "reference-errors": reference.errors,
    "commands": commands.sections,
}

_INSERT = re.compile(r"<!-- insert: (\S+) -->")
_VERBATIM = re.compile(r"(^```.*?^```|`[^`\n]+`|\[[^\]\n]*\]\([^)\n]*\)|^#.*?$|<[^>\n]*>)", re.M | re.S)
_CODE = re.compile(r"\bRT\d{3}\b")
_OUTSIDE = re.compile(r"\[([^\]\n]*)\]\(((?:\.\./)+[^)\n]+)\)")
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):<code>([~.\w]+)</code>")
_FETCHED = re.compile(
    r"<(?:script|img|iframe|link(?=[^>]*(?:stylesheet|preconnect|icon)))[^>]*"
    r"""(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Insert what is generated, and link."""
    path = page.file.src_uri
    markdown = _INSERT.sub(lambda found: inserted(found[1]), markdown)
    markdown = _OUTSIDE.sub(lambda found: named(found[1], found[2], path), markdown)
    if not path.startswith("rules/"):
        pages = {file.src_uri: file.content_string for file in files if file.src_uri.startswith("rules/")}
        markdown = linked(markdown, path, targets(pages))
    return markdown


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Links of docstrings, for the plugin that resolves them."""
    return _ROLE.sub(_reference, html)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Complain of what a browser would fetch from elsewhere."""
    for address in fetched(output):
        log.warning("%s fetches %s", page.file.src_uri, address)
    return output


def inserted(name: str) -> str:
    """What a generator makes.

    Raises:
        KeyError: There is none of that name.
    """
    return INSERTS[name]()


def named(text: str, target: str, path: str) -> str:
    """A link, or, if it leads out of the folder of the pages, the name of the file."""
    whole = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), target))
    if whole.startswith("docs/"):
        return f"[{text}]({target})"
    known = text in ("", whole, posixpath.basename(whole), posixpath.splitext(posixpath.basename(whole))[0])
    return f"`{whole}`" if known else f"{text} (`{whole}`)"


def targets(pages: dict[str, str]) -> dict[str, str]:
    """The page and the anchor of each rule: the first heading that names its code."""
    found: dict[str, str] = {}
    for page, markdown in sorted(pages.items(), key=lambda item: item[0].endswith("index.md")):
        text = _INSERT.sub(lambda insert: inserted(insert[1]), markdown)
        for heading in re.findall(r"^#+ (.*)$", text, re.M):
            words, _, anchor = heading.partition(" {#")
            for code in _CODE.findall(words):
                found.setdefault(code, f"{page}#{anchor.rstrip('}') or slugify(words, '-')}")
    return found


def linked(markdown: str, path: str, rules: dict[str, str]) -> str:
    """Rule codes in prose as links; headings, code, links and codes without a page stay as they are."""
    up = posixpath.relpath(".", posixpath.dirname(path) or ".")

    def link(found: re.Match[str]) -> str:
        target = rules.get(found[0])
        return f"[{found[0]}]({posixpath.normpath(posixpath.join(up, target))})" if target else found[0]

    parts = _VERBATIM.split(markdown)
    return "".join(part if number % 2 else _CODE.sub(link, part) for number, part in enumerate(parts))


def fetched(html: str) -> list[str]:
    """Addresses that a browser fetches to show a page."""
    return _FETCHED.findall(html)


def _reference(found: re.Match[str]) -> str:
    name = found[1]
    shown = name.rsplit(".", 1)[-1] if name.startswith("~") else name.lstrip(".")
    target = name.lstrip("~")
    if target.startswith("."):
        return f"<code>{shown}</code>"
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'
