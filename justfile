# The everyday commands; `just` lists them.

export PATH := justfile_directory() / ".environments/current/bin:" + env("PATH")

# list the commands
default:
    @just --list

# make the environment that the checks and the tests run in
setup:
    scripts/environment current

# lint, format, types, imports
check:
    ruff check .
    ruff format --check .
    mypy
    lint-imports

# mend what can be mended without thinking
fix:
    ruff check --fix .
    ruff format .

# the tests: `just test`, `just test --processes`, `just test -k search`
test *arguments:
    scripts/test {{ arguments }}

# write the pages of the known failures and the options anew
pages:
    scripts/catalogue-docs
    scripts/options-docs

# the documentation as a site, at http://127.0.0.1:8000
docs:
    mkdocs serve

# launch the example that fails, is corrected and trains
demo:
    scripts/demo
