// Memory, devices, streams and generators.
#include "standin.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <mutex>
#include <sstream>
#include <unordered_set>

namespace standin {
namespace {

constexpr int MOST = 16;
constexpr int64_t BLOCK = 2 << 20;  // what the allocator takes of the device at a time

std::mutex guard;
std::array<Memory, MOST> memories;
std::array<bool, MOST> contexts{};
thread_local c10::DeviceIndex current = 0;
thread_local c10::DeviceIndex charged = -1;

int64_t number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoll(text, nullptr, 10) : otherwise;
}

// The machine's numbers of the devices that this process sees.
const std::vector<int64_t>& numbers() {
  static const auto seen = [] {
    std::vector<int64_t> found;
    const auto all = std::min<int64_t>(number("STANDIN_NPU_DEVICES", 8), MOST);
    const char* visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (!visible) {
      for (int64_t place = 0; place < all; ++place) found.push_back(place);
      return found;
    }
    std::istringstream items(visible);
    for (std::string item; std::getline(items, item, ',');) {
      char* end = nullptr;
      const auto place = std::strtoll(item.c_str(), &end, 10);
      if (item.empty() || *end || place < 0 || place >= all) break;
      found.push_back(place);
    }
    return found;
  }();
  return seen;
}

std::string size(int64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (bytes < 1024) {
    text << bytes << " bytes";
  } else if (bytes < 1024 * 1024) {
    text << bytes / 1024.0 << " KiB";
  } else if (bytes < 1024 * 1024 * 1024) {
    text << bytes / 1048576.0 << " MiB";
  } else {
    text << bytes / 1073741824.0 << " GiB";
  }
  return text.str();
}

// Stands before the memory itself, whose address is all that raw_deallocate is given.
struct alignas(64) Block {
  int64_t bytes;
  c10::DeviceIndex index;  // -1: memory of the host
};

void give_back(void* data) {
  if (!data) return;
  auto* block = static_cast<Block*>(data) - 1;
  if (block->index >= 0) {
    std::lock_guard<std::mutex> lock(guard);
    memories[block->index].allocated -= block->bytes;
  }
  std::free(block);
}

c10::DataPtr block_of(int64_t bytes, c10::DeviceIndex index, c10::Device device) {
  void* block = nullptr;
  TORCH_CHECK(posix_memalign(&block, 64, bytes + sizeof(Block)) == 0,
              "the host has no memory left for ", size(bytes));
  void* data = new (block) Block{bytes, index} + 1;
  return {data, data, &give_back, device};
}

// The allocator counts in steps of 512 bytes, as NPUCachingAllocator does.
c10::DataPtr take(size_t bytes, c10::DeviceIndex index, c10::Device device) {
  const int64_t rounded = static_cast<int64_t>((bytes + 511) / 512 * 512);
  make_context(index);
  {
    std::lock_guard<std::mutex> lock(guard);
    auto& memory = memories[index];
    if (memory.allocated + rounded > capacity()) {
      const auto text = c10::str(
          "NPU out of memory. Tried to allocate ", size(rounded), " (NPU ", int(index), "; ",
          size(capacity()), " total capacity; ", size(memory.allocated), " already allocated; ",
          size(memory.allocated), " current active; ", size(capacity() - memory.reserved),
          " free; ", size(memory.reserved), " reserved in total by PyTorch) If reserved memory is ",
          ">> allocated memory try setting max_split_size_mb to avoid fragmentation.");
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    }
    memory.allocated += rounded;
    memory.peak = std::max(memory.peak, memory.allocated);
    const auto held = std::min((memory.allocated + BLOCK - 1) / BLOCK * BLOCK, capacity());
    memory.reserved = std::max(memory.reserved, held);
    memory.peak_reserved = std::max(memory.peak_reserved, memory.reserved);
  }
  return block_of(rounded, index, device);
}

struct DeviceMemory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    return take(bytes, current, c10::Device(NPU, current));
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool initialized() override { return has_context(); }
  void emptyCache(c10::MempoolId_t) override {
    for (int index = 0; index < device_count(); ++index) empty_cache(index);
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto memory = memory_of(index);
    auto& held = stats.allocated_bytes[0];
    held.current = memory.allocated;
    held.peak = memory.peak;
    auto& kept = stats.reserved_bytes[0];
    kept.current = memory.reserved;
    kept.peak = memory.peak_reserved;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex index) override { reset_peak(index); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    return {capacity() - memory_of(index).reserved, capacity()};
  }
};

struct HostMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device host(c10::kCPU);
    return charged < 0 ? block_of(bytes, -1, host) : take(bytes, charged, host);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

std::mutex pinned_guard;
std::unordered_set<const void*> pinned;

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    TORCH_CHECK(posix_memalign(&data, 4096, bytes + 1) == 0, "the host has no memory left");
    std::lock_guard<std::mutex> lock(pinned_guard);
    pinned.insert(data);
    return {data, data, &unpin, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  static void unpin(void* data) {
    {
      std::lock_guard<std::mutex> lock(pinned_guard);
      pinned.erase(data);
    }
    std::free(data);
  }
};

DeviceMemory device_memory;
HostMemory host_memory;
PinnedMemory pinned_memory;

using Moment = std::chrono::steady_clock::time_point;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return NPU; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {NPU, current}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  // Every kernel has ended when its call returns: an event is past as soon as it is recorded.
  void record(void** event, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new Moment;
    *static_cast<Moment*>(*event) = std::chrono::steady_clock::now();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Moment*>(event);
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    const auto span = *static_cast<Moment*>(to) - *static_cast<Moment*>(from);
    return std::chrono::duration<double, std::milli>(span).count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Its state is the seed and how many numbers were drawn, 8 bytes each: DTensor moves the latter to
// each shard's place in the whole (torch/distributed/tensor/_random.py). The CPU's generator draws.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index, uint64_t seed = c10::default_rng_seed_val)
      : GeneratorImpl({NPU, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(at::detail::createCPUGenerator(seed)),
        counted(seed) {}
  void set_current_seed(uint64_t seed) override {
    host.set_current_seed(seed);
    counted = at::mt19937(seed);
    drawn = 0;
  }
  void set_offset(uint64_t offset) override {
    set_current_seed(current_seed());
    for (; drawn < offset; ++drawn) counted();
    host.get<at::CPUGeneratorImpl>()->set_engine(counted);
  }
  uint64_t get_offset() const override {
    const auto now = host.get<at::CPUGeneratorImpl>()->engine().data();
    constexpr int whole = at::MERSENNE_STATE_N;  // numbers until the engine has a new state
    const auto advance = [this](int many) {
      for (drawn += many; many; --many) counted();
    };
    advance((counted.data().left_ - now.left_ + whole) % whole);
    while (counted.data().state_ != now.state_) advance(whole);
    return drawn;
  }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override {
    const auto seed = host.seed();
    set_current_seed(seed);
    return seed;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 2 * sizeof(uint64_t), "RNG state is wrong size");
    std::array<uint64_t, 2> parts;
    std::memcpy(parts.data(), state.data(), sizeof parts);
    set_current_seed(parts[0]);
    set_offset(parts[1]);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const std::array<uint64_t, 2> parts{current_seed(), get_offset()};
    auto state = at::empty({sizeof parts}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), parts.data(), sizeof parts);
    return state.getIntrusivePtr();
  }
  at::Generator host;

 private:
  mutable at::mt19937 counted;  // the host's engine when `drawn` was right
  mutable uint64_t drawn = 0;

  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->host = host.clone();
    copy->counted = counted;
    copy->drawn = drawn;
    return copy;
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return has_context(); }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_device(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = current;
    set_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  bool isPinnedPtr(const void* data) const override {
    std::lock_guard<std::mutex> lock(pinned_guard);
    return pinned.count(data) > 0;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  c10::Device getDeviceFromPtr(void*) const override { return {NPU, current}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current : index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const auto device = storage.device();
    auto fresh = take(bytes, device.index(), device);
    const auto kept = std::min(bytes, storage.nbytes());
    if (kept) std::memcpy(fresh.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.set_nbytes(bytes);
  }
};

struct Registered {
  Registered() {
    c10::SetAllocator(NPU, &device_memory);
    c10::SetCPUAllocator(&host_memory, 1);
    static Hooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
  }
} registered;

}  // namespace

c10::Allocator* allocator() { return &device_memory; }

c10::DeviceIndex device_count() { return static_cast<c10::DeviceIndex>(numbers().size()); }

c10::DeviceIndex current_device() { return current; }

void set_device(c10::DeviceIndex index) {
  if (index < 0) return;
  TORCH_CHECK(index < device_count(), "Invalid device ID. Check whether the ASCEND device ",
              int(index), " exists: ", int(device_count()), " are visible.");
  current = index;
}

int64_t capacity() {
  static const auto bytes = number("STANDIN_NPU_MEMORY", int64_t(32) << 30);
  return bytes;
}

Memory memory_of(c10::DeviceIndex index) {
  std::lock_guard<std::mutex> lock(guard);
  return memories.at(index);
}

void reset_peak(c10::DeviceIndex index) {
  std::lock_guard<std::mutex> lock(guard);
  auto& memory = memories.at(index);
  memory.peak = memory.allocated;
  memory.peak_reserved = memory.reserved;
}

void empty_cache(c10::DeviceIndex index) {
  std::lock_guard<std::mutex> lock(guard);
  auto& memory = memories.at(index);
  memory.reserved = std::min((memory.allocated + BLOCK - 1) / BLOCK * BLOCK, capacity());
}

// The driver's files stay open as long as the process lives, and in what it forks or executes.
void make_context(c10::DeviceIndex index) {
  std::lock_guard<std::mutex> lock(guard);
  if (contexts.at(index)) return;
  contexts[index] = true;
  const char* folder = std::getenv("STANDIN_NPU_FILES");
  if (!folder) return;
  for (const auto& name : {std::string("_manager"), std::to_string(numbers().at(index))}) {
    const auto path = std::string(folder) + "/davinci" + name;
    TORCH_CHECK(open(path.c_str(), O_RDWR | O_CREAT, 0600) >= 0, "can't open ", path);
  }
}

bool has_context() {
  std::lock_guard<std::mutex> lock(guard);
  return std::find(contexts.begin(), contexts.end(), true) != contexts.end();
}

OnDevice::OnDevice(c10::DeviceIndex index) : before_(charged) { charged = index; }
OnDevice::~OnDevice() { charged = before_; }

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto all = [] {
    std::vector<at::Generator> made;
    for (int place = 0; place < MOST; ++place) made.push_back(at::make_generator<Generator>(place));
    return made;
  }();
  return all.at(index < 0 ? current : index);
}

at::Generator drawing_for(const at::Generator& generator) {
  if (generator.device().type() != NPU) return generator;
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->host;
}

}  // namespace standin
