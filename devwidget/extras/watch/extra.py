"""The extra that watches runs."""

from devwidget.extras import Extra

EXTRA = Extra(
    names={
        "Watch": "watch",
        "WatchedRun": "records.run",
        "watch": "api",
    },
    records={"WatchedRun": "records.run"},
    words=("words.run", "words.frames"),
    commands=("commands",),
    panel=("screen",),
    integrations={
        "FindingWarning": "integrations.trainer_watch",
        "LightningCallback": "integrations.lightning_callback",
        "TrainerWatch": "integrations.trainer_watch",
        "TransformersCallback": "integrations.transformers_callback",
        "watch_accelerator": "integrations.trainer_watch",
    },
    magics={"watch": "magic"},
)
