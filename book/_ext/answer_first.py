"""The order of a chapter's page: answer, the figure that shows it, then everything else; parameters
and settings stand at the end, beside what reruns them.

A notebook has to compute before it can draw, and papermill needs the parameters early. So the page
is put in another order than the notebook that is downloaded from it, and nothing is changed but
places: the output with the leading figure goes to the place that `cde_book.pages` has marked below
the answer, and the section *Parameters* to just before *Run it again*. Figures have numbers in the
order of the page.
"""

import re

from docutils import nodes

_PAGES = "book/executed/"
_FIGURE = re.compile(r"class='cde-figure( cde-lead)?' id='(figure-\d+)'")
#: where `cde_book.plots.show` writes a figure's number
_NUMBER = re.compile(
    r"(?<= id='figure-)\d+(?=')|(?<=<b>Figure )\d+(?=\.</b>)|"
    r'(?<=<summary>The numbers of figure )\d+|(?<=-figure-)\d+(?=\.csv")'
)


def _outputs(doctree):
    """The outputs of cells that hold a figure, with whether it leads."""
    for raw in doctree.findall(nodes.raw):
        found = _FIGURE.search(raw.astext())
        if found and raw.get("format") == "html":
            bundle = raw.parent
            while bundle is not None and bundle.get("nb_element") != "mime_bundle":
                bundle = bundle.parent
            if bundle is not None:
                yield bundle, bool(found[1])


def _lead(doctree):
    """The output of the figure that is marked as leading, else of the first."""
    every = list(_outputs(doctree))
    return next((one for one in every if one[1]), every[0] if every else None)


def _move_figure(doctree, place):
    found = _lead(doctree)
    if found is None:
        place.parent.remove(place)
        return
    bundle, _ = found
    link = '<p class="cde-moved"><a href="#figure-1">Figure 1 is at the top of this page.</a></p>'
    bundle.replace_self(nodes.raw("", link, format="html"))
    lead = nodes.container(classes=["cell_output", "cde-answer-figure"])
    lead += bundle
    place.replace_self(lead)


def _number_figures(doctree):
    figures = [raw for raw in doctree.findall(nodes.raw) if _FIGURE.search(raw.astext())]
    for number, raw in enumerate(figures, start=1):
        text = _NUMBER.sub(str(number), raw.astext())
        raw.clear()
        raw += nodes.Text(text)


def _wrap_answer(place):
    """The answer in an element of its own, from below the title to the figure."""
    section = place.parent
    first = 1 if isinstance(section[0], nodes.title) else 0
    words = section[first : section.index(place)]
    answer = nodes.container(classes=["cde-answer"])
    for node in words:
        section.remove(node)
        answer += node
    section.insert(first, answer)


def _move_parameters(doctree):
    sections = {name: one for one in doctree.findall(nodes.section) for name in one["ids"]}
    parameters, rerun = sections.get("parameters"), sections.get("run-it-again")
    if parameters is None or rerun is None or parameters.parent is not rerun.parent:
        return
    parameters.parent.remove(parameters)
    rerun.parent.insert(rerun.parent.index(rerun), parameters)


def _put_in_order(app, doctree):
    if not app.env.docname.startswith(_PAGES):
        return
    for raw in list(doctree.findall(nodes.raw)):
        if "<!-- the figure that shows the answer -->" in raw.astext():
            _wrap_answer(raw)
            _move_figure(doctree, raw)
    _number_figures(doctree)
    _move_parameters(doctree)


def setup(app):
    app.connect("doctree-read", _put_in_order, priority=400)  # before the contents are listed
    return {"parallel_read_safe": True, "parallel_write_safe": True}
