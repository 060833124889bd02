// The process group "hccl": gloo's, on the same memory.
#include "standin.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

namespace standin {
namespace {

using c10d::Backend;
using Tensors = std::vector<at::Tensor>;
using c10::intrusive_ptr;
using WorkPtr = intrusive_ptr<c10d::Work>;

Tensors hosts(const Tensors& tensors) {
  Tensors made;
  for (const auto& each : tensors) {
    TORCH_CHECK(each.device().type() == NPU, "HCCL takes tensors of an NPU, and this one is on ",
                each.device().str());
    made.push_back(on_host(each));
  }
  return made;
}

std::vector<Tensors> hosts(const std::vector<Tensors>& lists) {
  std::vector<Tensors> made;
  for (const auto& each : lists) made.push_back(hosts(each));
  return made;
}

// Gloo may copy its result into place at every wait, so it is waited for once.
struct Work final : c10d::Work {
  Work(WorkPtr inner, Tensors results, Tensors held, int64_t divisor)
      : inner_(std::move(inner)),
        results_(std::move(results)),
        held_(std::move(held)),
        divisor_(divisor) {}
  bool isCompleted() override { return done_ || inner_->isCompleted(); }
  bool isSuccess() const override { return done_ || inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  Tensors result() override { return results_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override {
    std::lock_guard<std::mutex> lock(guard_);
    if (!done_) {
      inner_->wait(timeout);
      if (divisor_ > 1) {
        for (auto& each : results_) on_host(each).div_(divisor_);
      }
      done_ = true;
      held_.clear();
    }
    return true;
  }
  void abort() override { inner_->abort(); }
  intrusive_ptr<c10::ivalue::Future> getFuture() override {
    wait(kNoTimeout);
    std::vector<c10::Device> devices;
    for (const auto& each : results_) {
      if (std::find(devices.begin(), devices.end(), each.device()) == devices.end()) {
        devices.push_back(each.device());
      }
    }
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), devices);
    future->markCompleted(c10::IValue(results_));
    return future;
  }

 private:
  WorkPtr inner_;
  Tensors results_, held_;
  int64_t divisor_;
  bool done_ = false;
  std::mutex guard_;
};

// Every collective again, for the tensors' memory on the host.
class Hccl final : public Backend {
 public:
  Hccl(intrusive_ptr<Backend> gloo, int rank, int size)
      : Backend(rank, size), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "hccl"; }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    auto held = hosts(tensors);
    return begun(gloo_->broadcast(held, options), tensors, held);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto held = hosts(tensors);
    auto own = options;
    const auto divisor = summed(own.reduceOp);
    return begun(gloo_->allreduce(held, own), tensors, held, divisor);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    auto held = hosts(tensors);
    auto own = options;
    const auto divisor = summed(own.reduceOp);
    return begun(gloo_->allreduce_coalesced(held, own), tensors, held, divisor);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    auto held = hosts(tensors);
    auto own = options;
    const auto divisor = summed(own.reduceOp);
    return begun(gloo_->reduce(held, own), tensors, held, divisor);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    auto lists = hosts(outputs);
    auto held = hosts(inputs);
    return begun(gloo_->allgather(lists, held, options), outputs.at(0), held);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    Tensors held{on_host(output), on_host(input)};
    return begun(gloo_->_allgather_base(held[0], held[1], options), {output}, held);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    auto to = hosts(outputs), from = hosts(inputs);
    return begun(gloo_->allgather_into_tensor_coalesced(to, from, options), outputs, from);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    auto lists = hosts(outputs);
    auto held = hosts(inputs);
    return begun(gloo_->gather(lists, held, options), outputs.empty() ? Tensors{} : outputs[0],
                 held);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    auto held = hosts(outputs);
    auto lists = hosts(inputs);
    return begun(gloo_->scatter(held, lists, options), outputs, held);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    auto held = hosts(outputs);
    auto lists = hosts(inputs);
    auto own = options;
    const auto divisor = summed(own.reduceOp);
    return begun(gloo_->reduce_scatter(held, lists, own), outputs, held, divisor);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    Tensors held{on_host(output), on_host(input)};
    auto own = options;
    const auto divisor = summed(own.reduceOp);
    return begun(gloo_->_reduce_scatter_base(held[0], held[1], own), {output}, held, divisor);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    auto to = hosts(outputs), from = hosts(inputs);
    auto own = options;
    const auto divisor = summed(own.reduceOp);
    return begun(gloo_->reduce_scatter_tensor_coalesced(to, from, own), outputs, from, divisor);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& out_sizes,
                        std::vector<int64_t>& in_sizes,
                        const c10d::AllToAllOptions& options) override {
    Tensors held{on_host(output), on_host(input)};
    return begun(gloo_->alltoall_base(held[0], held[1], out_sizes, in_sizes, options), {output},
                 held);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    auto held = hosts(tensors);
    return begun(gloo_->send(held, to, tag), tensors, held);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    auto held = hosts(tensors);
    return begun(gloo_->recv(held, from, tag), tensors, held);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    auto own = options;
    own.device_ids.clear();
    own.device = std::nullopt;
    return begun(gloo_->barrier(own), {}, {});
  }
  void abort() override { gloo_->abort(); }
  void shutdown() override { gloo_->shutdown(); }

 private:
  // Gloo has no average: the sum is divided where it is waited for.
  int64_t summed(c10d::ReduceOp& op) const {
    if (op != c10d::ReduceOp::AVG) return 1;
    op = c10d::ReduceOp::SUM;
    return getSize();
  }
  static WorkPtr begun(WorkPtr inner, Tensors results, Tensors held, int64_t divisor = 1) {
    return c10::make_intrusive<Work>(std::move(inner), std::move(results), std::move(held),
                                     divisor);
  }
  intrusive_ptr<Backend> gloo_;
};

}  // namespace

intrusive_ptr<Backend> hccl(intrusive_ptr<Backend> gloo, int rank, int size) {
  return c10::make_intrusive<Hccl>(std::move(gloo), rank, size);
}

}  // namespace standin
