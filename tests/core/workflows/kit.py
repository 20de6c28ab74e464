"""Workflows as text, and what the check finds in them."""

from __future__ import annotations

import textwrap

from rota.core.workflows.replay_check import SourceReport, check_source

IMPORTS = """
import asyncio, collections, datetime, glob, os, random, secrets, shutil, socket, subprocess
import tempfile, threading, time, urllib.parse, urllib.request, uuid
import aiohttp, httpx, numpy as np, requests
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import rota
from rota import gather, now, sleep

app = rota.Rota()
COLOURS = {"red", "blue"}
client = httpx.AsyncClient()

@app.step
async def send(x): ...

@app.step
def read(x): ...
"""


def check(text: str) -> SourceReport:
    """Check the text of a module."""
    return check_source(textwrap.dedent(text), "shop.py")


def in_workflow(body: str, parameters: str = "names: list[str]", kind: str = "async def") -> str:
    """A module with a workflow of this body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return f"{IMPORTS}\n@app.workflow\n{kind} fulfil({parameters}):\n{lines}\n"


def found(body: str, **more: str) -> list[tuple[str, str]]:
    """The findings in the body of a workflow, with the advice."""
    findings = check(in_workflow(body, **more)).findings
    assert all(finding.workflows == ("fulfil",) for finding in findings)
    return [(finding.found, finding.advice) for finding in findings]
