"""A native library's thread is started a second time while the first one runs."""

import ctypes
import subprocess
import sys
from pathlib import Path

import torch

RANKS = 1

SOURCE = """
#include <atomic>
#include <chrono>
#include <thread>
static std::thread loader;
static std::atomic<bool> is_wanted;
extern "C" void begin() {
  is_wanted = true;
  loader = std::thread([] {
    while (is_wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}
extern "C" void end() { is_wanted = false; loader.join(); }
"""
Path("loader.cpp").write_text(SOURCE)
build = ["g++", "-shared", "-fPIC", "-pthread", "-o", "loader.so", "loader.cpp"]
subprocess.run(build, check=True)
loader = ctypes.CDLL(str(Path("loader.so").resolve()))
model = torch.nn.Linear(4, 1)
for _epoch in range(2):
    loader.begin()
    model(torch.ones(2, 4)).sum().backward()
    if "--advised" in sys.argv:
        loader.end()
