"""Builds the stand-in for torch_npu: `pip install --no-build-isolation tests/standins/npu`."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

SOURCES = sorted(str(path) for path in Path("csrc").glob("*.cpp"))
setup(
    name="torch_npu",
    version="2.13.0",
    packages=["torch_npu"],
    ext_modules=[CppExtension("torch_npu._C", SOURCES, extra_compile_args=["-O1", "-g0"])],
    cmdclass={"build_ext": BuildExtension},
    entry_points={"torch.backends": ["torch_npu = torch_npu:_autoload"]},
)
