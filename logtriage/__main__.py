"""``python -m logtriage``: arguments and a log go in; the diagnosis comes out."""

from logtriage.cli import main

raise SystemExit(main())
