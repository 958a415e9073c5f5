"""HTML pages, parsed."""

import base64
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "hr", "input"}


class Page(HTMLParser):
    """Elements must be closed in order; collects text, addresses and pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.images: list[bytes] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        named = dict(attributes)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "action")]
        if tag == "img":
            assert named["alt"]
            self.images.append(base64.b64decode((named["src"] or "").split(",")[1], validate=True))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    def row(self, name: str) -> list[str]:
        """The only row that begins with that cell."""
        (found,) = self.rows_of(name)
        return found

    def rows_of(self, name: str) -> list[list[str]]:
        """Rows that begin with that cell, without it."""
        return [[cell.strip() for cell in row[1:]] for row in self.rows if row and row[0].strip() == name]
