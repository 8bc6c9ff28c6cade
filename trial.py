import sys, threading, io
from pathlib import Path

sys.path.insert(0, "/work/wt/media")
from experiments import screenshots as s
from dartsim.cli.live import site_of
from dartsim.observe.page.server import PageServer
from PIL import Image

root = Path("/work/helper/server/runs")
site = site_of([root / "dart", root / "tiny"], root)
a = s.telling_attempt(site.get(["tiny", "attempts"]))
server = PageServer(site)
threading.Thread(target=server.serve_forever, daemon=True).start()
h1, h2 = int(sys.argv[1]), int(sys.argv[2])
to = site.get(["dart", "lanes"])["to"]
parts = [
    Image.open(io.BytesIO(t))
    for t in s.screenshots(
        server.url,
        (
            (f"runs=dart&view=schedule&from={to * 0.75}&to={to * 0.75 + 300}", h1),
            (f"runs=tiny&view=player&attempt={a}", h2),
        ),
    )
]
whole = Image.new("RGB", (s.WIDTH, sum(p.height for p in parts)))
whole.paste(parts[0], (0, 0))
whole.paste(parts[1], (0, parts[0].height))
whole.save("/work/helper/media/trial.png")
server.shutdown()
server.close()
