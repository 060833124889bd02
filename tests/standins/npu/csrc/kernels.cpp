// Kernels: the CPU's, on the same memory.
#include "standin.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

namespace standin {
namespace {

// A storage of the CPU's on the memory of one of the device's, which has to outlive it.
c10::Storage host_storage(const c10::Storage& storage) {
  void* data = storage.mutable_data();
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(data, c10::Device(c10::kCPU)), c10::GetAllocator(c10::kCPU), true));
}

// A data pointer of the device's that keeps a storage of the CPU's alive.
c10::DataPtr device_data(const c10::Storage& host, c10::Device device) {
  auto* keeps = new c10::Storage(host);
  return {host.mutable_data(), keeps,
          [](void* context) { delete static_cast<c10::Storage*>(context); }, device};
}

at::Tensor shaped_like(const at::Tensor& like, c10::Storage storage, c10::DispatchKey key) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                       c10::DispatchKeySet(key), like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  impl->set_storage_offset(like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  impl->_set_conj(like.is_conj());
  impl->_set_neg(like.is_neg());
  return made;
}

bool is_npu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == NPU;
}

// Operators that take tensors of several devices on a real one, too.
bool may_mix(const std::string& name) {
  static const char* const names[] = {"aten::index", "aten::_index_put_impl_", "aten::copy",
                                      "aten::_fused_adam", "aten::_foreach"};
  for (const char* each : names) {
    if (name.rfind(each, 0) == 0) return true;
  }
  return false;
}

// One call of an operator: what its tensors of the device are on the host.
struct Call {
  struct Pair {
    at::Tensor device, host;
  };
  std::vector<Pair> pairs;
  std::vector<std::pair<c10::Storage, c10::Storage>> storages;  // of the device, of the host
  std::optional<c10::Device> device;
  bool mixes = false;
  std::string name;

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!is_npu(tensor)) {
      TORCH_CHECK(mixes || !tensor.defined() || tensor.dim() == 0 || !device ||
                      tensor.device().type() != c10::kCPU || tensor.numel() == 0,
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  device->str(), " and cpu! (when checking arguments of ", name, ")");
      return tensor;
    }
    TORCH_CHECK(mixes || !device || *device == tensor.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                device->str(), " and ", tensor.device().str(), "! (when checking arguments of ",
                name, ")");
    if (!device) device = tensor.device();
    auto host = shaped_like(tensor, storage_of(tensor.storage()), c10::DispatchKey::CPU);
    pairs.push_back({tensor, host});
    return host;
  }

  c10::Storage storage_of(const c10::Storage& storage) {
    for (auto& [own, host] : storages) {
      if (own.is_alias_of(storage)) return host;
    }
    storages.emplace_back(storage, host_storage(storage));
    return storages.back().second;
  }

  // A result: an argument, a view of one, or something new.
  at::Tensor to_device(const at::Tensor& host) {
    if (!host.defined() || !device || host.device().type() != c10::kCPU) return host;
    for (auto& pair : pairs) {
      if (pair.host.is_same(host)) return pair.device;
    }
    for (auto& [own, alias] : storages) {
      if (alias.is_alias_of(host.storage())) {
        return shaped_like(host, own, c10::DispatchKey::PrivateUse1);
      }
    }
    return on_device(host, *device);
  }

  // What the operator has resized, as `out=` arguments are, is resized on the device.
  void write_back() {
    for (auto& [own, host] : storages) {
      if (own.data() != host.data() || own.nbytes() != host.nbytes()) {
        own.set_data_ptr_noswap(device_data(host, own.device()));
        own.set_nbytes(host.nbytes());
      }
    }
    for (auto& [tensor, host] : pairs) {
      if (!tensor.sizes().equals(host.sizes()) || !tensor.strides().equals(host.strides()) ||
          tensor.storage_offset() != host.storage_offset()) {
        auto* impl = tensor.unsafeGetTensorImpl();
        impl->set_sizes_and_strides(host.sizes(), host.strides());
        impl->set_storage_offset(host.storage_offset());
      }
    }
  }
};

bool is_generator(const c10::Argument& argument) {
  auto type = argument.type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::GeneratorType;
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto count = schema.arguments().size();
  const auto begin = stack->size() - count;
  Call call;
  call.name = schema.operator_name().name;
  call.mixes = may_mix(call.name);
  // The device first: a tensor of the host's may stand before that of the device's.
  for (size_t place = 0; place < count && !call.device; ++place) {
    const auto& value = (*stack)[begin + place];
    if (value.isTensor() && is_npu(value.toTensor())) {
      call.device = value.toTensor().device();
    } else if (value.isTensorList()) {
      for (const at::Tensor& each : value.toTensorVector()) {
        if (is_npu(each) && !call.device) call.device = each.device();
      }
    } else if (value.isDevice() && value.toDevice().type() == NPU) {
      const auto asked = value.toDevice();
      call.device = asked.has_index() ? asked : c10::Device(NPU, current_device());
    }
  }
  for (size_t place = 0; place < count; ++place) {
    auto& value = (*stack)[begin + place];
    if (value.isTensor()) {
      value = call.to_host(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> hosts;
      for (const at::Tensor& each : value.toTensorVector()) hosts.push_back(call.to_host(each));
      value = c10::List<at::Tensor>(hosts);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> hosts;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorList()) {
        hosts.push_back(each ? std::optional<at::Tensor>(call.to_host(*each)) : std::nullopt);
      }
      value = hosts;
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    } else if (value.isGenerator()) {
      value = drawing_for(value.toGenerator());
    } else if (value.isNone() && is_generator(schema.arguments()[place])) {
      value = drawing_for(default_generator(call.device ? call.device->index() : -1));
    }
  }
  {
    OnDevice charged(call.device ? call.device->index() : current_device());
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  call.write_back();
  const auto results = schema.returns().size();
  for (size_t place = stack->size() - results; place < stack->size(); ++place) {
    auto& value = (*stack)[place];
    if (value.isTensor()) {
      value = call.to_device(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> made;
      for (const at::Tensor& each : value.toTensorVector()) made.push_back(call.to_device(each));
      value = c10::List<at::Tensor>(made);
    }
  }
}

c10::Device device_of(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(NPU, current_device());
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard there(device_of(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard there(device_of(device));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool) {
  auto to = is_npu(self) ? on_host(self) : self;
  to.copy_(is_npu(source) ? on_host(source) : source);
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& to, bool non_blocking) {
  auto target = to;
  copy_(target, source, non_blocking);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& to) {
  auto target = to;
  target.resize_(source.sizes());
  copy_(target, source, false);
  return to;
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  if (format) impl->empty_tensor_restride(*format);
  const auto needed = (self.storage_offset() + self.numel()) * self.dtype().itemsize();
  if (self.numel() && needed > self.storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), needed);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const c10::SymInt size(static_cast<int64_t>(source.nbytes() / self.dtype().itemsize()));
  return at::native::set_storage_meta__symint(self, std::move(source), 0, {&size, 1}, {});
}

at::Tensor& set_storage_shaped(at::Tensor& self, at::Storage source, c10::SymInt offset,
                               c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::set_storage_meta__symint(self, std::move(source), offset, size, stride);
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_shaped(self, source.storage(), source.sym_storage_offset(),
                            source.sym_sizes(), source.sym_strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const c10::DeviceGuard there(self.device());
  return set_tensor(self, at::empty({0}, self.options()));
}

int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                         bool) {
  return 0;  // SDPBackend::math: the others have kernels of their own on each device
}

void record_stream(at::Tensor&, at::Stream) {}

// `parameter.data = ...` may move a parameter between the host and the device.
bool may_take_data(const at::Tensor& self, const at::Tensor& from) {
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && (is_npu(tensor) || tensor.is_cpu());
  };
  return is_plain(self) && is_plain(from);
}

std::optional<at::Tensor> on_host(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional(standin::on_host(*tensor)) : std::nullopt;
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                       c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  const OnDevice charged(input.device().index());
  return on_device(at::convolution_symint(standin::on_host(input), standin::on_host(weight),
                                          on_host(bias), stride, padding, dilation, transposed,
                                          output_padding, groups),
                   input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
    bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> mask) {
  const OnDevice charged(input.device().index());
  const std::vector<c10::SymInt> bias{weight.sym_size(transposed ? 1 : 0) *
                                      (transposed ? groups : c10::SymInt(1))};
  const auto [of_input, of_weight, of_bias] = at::convolution_backward_symint(
      standin::on_host(gradient), standin::on_host(input), standin::on_host(weight),
      c10::SymIntArrayRef(bias), stride, padding, dilation, transposed, output_padding, groups,
      mask);
  const auto made = [&](const at::Tensor& each) {
    return each.defined() ? on_device(each, input.device()) : each;
  };
  return {made(of_input), made(of_weight), made(of_bias)};
}

}  // namespace

at::Tensor on_host(const at::Tensor& tensor) {
  return shaped_like(tensor, host_storage(tensor.storage()), c10::DispatchKey::CPU);
}

at::Tensor on_device(const at::Tensor& tensor, c10::Device device) {
  const auto& host = tensor.storage();
  auto storage = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), host.nbytes(), device_data(host, device), allocator(),
      true));
  return shaped_like(tensor, std::move(storage), c10::DispatchKey::PrivateUse1);
}

}  // namespace standin

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&standin::run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", standin::empty);
  m.impl("empty_strided", standin::empty_strided);
  m.impl("as_strided", standin::as_strided);
  m.impl("view", standin::view);
  m.impl("copy_", standin::copy_);
  m.impl("_copy_from", standin::copy_from);
  m.impl("_copy_from_and_resize", standin::copy_from_and_resize);
  m.impl("resize_", standin::resize_);
  m.impl("set_.source_Storage", standin::set_storage);
  m.impl("set_.source_Storage_storage_offset", standin::set_storage_shaped);
  m.impl("set_.source_Tensor", standin::set_tensor);
  m.impl("set_", standin::set_empty);
  m.impl("_fused_sdp_choice", standin::fused_sdp_choice);
  m.impl("record_stream", standin::record_stream);
  m.impl("convolution_overrideable", standin::convolution);
  m.impl("convolution_backward_overrideable", standin::convolution_backward);
  m.impl("_has_compatible_shallow_copy_type", standin::may_take_data);
}

TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
#undef LOWER
#define FULL(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FULL)
#undef FULL
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(WIDEST)
#undef WIDEST
}
