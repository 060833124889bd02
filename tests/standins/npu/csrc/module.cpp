// What Python sees.
#include "standin.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/extension.h>

namespace standin {
c10::intrusive_ptr<c10d::Backend> hccl(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace standin;
  m.def("device_count", [] { return int(device_count()); });
  m.def("current_device", [] { return int(current_device()); });
  m.def("set_device", [](int index) {
    set_device(c10::DeviceIndex(index));
    make_context(current_device());
  });
  m.def("capacity", &capacity);
  m.def("has_context", &has_context);
  m.def("memory", [](int index) {
    const auto memory = memory_of(c10::DeviceIndex(index));
    return std::make_tuple(memory.allocated, memory.peak, memory.reserved, memory.peak_reserved);
  });
  m.def("reset_peak", [](int index) { reset_peak(c10::DeviceIndex(index)); });
  m.def("empty_cache", [](int index) { empty_cache(c10::DeviceIndex(index)); });
  m.def("default_generator", [](int index) { return default_generator(c10::DeviceIndex(index)); });
  m.def("hccl", &hccl, pybind11::call_guard<pybind11::gil_scoped_release>());
}
