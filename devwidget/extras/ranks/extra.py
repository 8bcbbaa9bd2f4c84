"""The extra that queries the ranks of a job."""

from devwidget.extras import Extra

EXTRA = Extra(
    names={
        **dict.fromkeys(("ranks", "serve"), "api"),
        **dict.fromkeys(("Cluster", "Rank"), "records.cluster"),
        "Agent": "agent",
        "RankReport": "records.rank",
        "RanksWidget": "screen",
    },
    records={"Cluster": "records.checks", "RankReport": "records.checks"},
    files=("flight_file",),
    folders=("flight_file",),
    words=("words.cluster", "page"),
    commands=("commands",),
    panel=("screen",),
    recorder={"path": "answer"},
    observers=("traced_collectives",),
)
