"""The HTML report about runs, as one self-contained page.

``rookery report`` imports this package. Start reading at `rookery.report.page.content`, the data of
a page, and `rookery.report.page.html`, which renders it.
"""
