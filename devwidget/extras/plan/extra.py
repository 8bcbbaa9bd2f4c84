"""What plans offer."""

from devwidget.extras import Extra

EXTRA = Extra(
    names={
        **dict.fromkeys(("place", "plan"), "api"),
        **dict.fromkeys(("Changes", "Generation", "LargestBatch", "Layout"), "records.answers"),
        **dict.fromkeys(("DevicePlan", "Plan"), "records.plan"),
        "ParallelPlan": "records.parallel_plan",
    },
    records={
        **dict.fromkeys(("Changes", "Generation", "LargestBatch", "Layout", "OnCards"), "records.answers"),
        "ParallelPlan": "records.parallel_plan",
        "Plan": "records.plan",
    },
    words=("words.plan", "words.questions", "words.frames", "page.draw_plan", "page.place"),
    commands=("commands",),
    panel=("screen.proposed",),
    after=("meta",),
)
