"""Tables in pages of the documentation, between markers that name them."""


def insert(page: str, name: str, table: str) -> str:
    """The page with this table where the one of the same name was."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    before, rest = page.split(begin)
    return before + begin + table + end + rest.split(end)[1]
