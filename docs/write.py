"""Write what is made from the code: docs/settings.md, and the settings in the README. `make docs` runs this."""

from pathlib import Path

from fencepost.cli import settings_page

TOP = Path(__file__).parents[1]
README = TOP / "README.md"

(TOP / "docs" / "settings.md").write_text(settings_page.page(), encoding="utf-8")
README.write_text(settings_page.in_readme(README.read_text(encoding="utf-8")), encoding="utf-8")
