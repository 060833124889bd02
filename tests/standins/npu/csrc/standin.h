// An NPU that exists in host memory only: device memory is counted, kernels are the CPU's.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/Generator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace standin {

constexpr auto NPU = c10::DeviceType::PrivateUse1;

struct Memory {
  int64_t allocated = 0, peak = 0, reserved = 0, peak_reserved = 0;
};

c10::DeviceIndex device_count();
c10::DeviceIndex current_device();
void set_device(c10::DeviceIndex index);
int64_t capacity();
Memory memory_of(c10::DeviceIndex index);
void reset_peak(c10::DeviceIndex index);
void empty_cache(c10::DeviceIndex index);
void make_context(c10::DeviceIndex index);
bool has_context();

c10::Allocator* allocator();

// While one lives, what this thread allocates on the CPU is memory of the device.
struct OnDevice {
  explicit OnDevice(c10::DeviceIndex index);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::DeviceIndex before_;
};

const at::Generator& default_generator(c10::DeviceIndex index);
// The CPU's generator that draws for one of the device's.
at::Generator drawing_for(const at::Generator& generator);

// A tensor of the CPU on the same memory.
at::Tensor on_host(const at::Tensor& tensor);
// A tensor of the device that takes the memory of one that was made under OnDevice.
at::Tensor on_device(const at::Tensor& tensor, c10::Device device);

}  // namespace standin
