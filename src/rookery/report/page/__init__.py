"""The HTML report about runs, as one self-contained page.

Only ``rookery report`` imports this package. Start reading at `rookery.report.page.content`, which
gathers the content of a page, and `rookery.report.page.html`, which renders it.
"""
