#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

namespace troupe {

/// Averages a bucket of gradients in bfloat16.
class bf16_compression_hook final : public c10d::CommHookInterface {
public:
  explicit bf16_compression_hook(c10::intrusive_ptr<c10d::ProcessGroup> group)
    : group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future>
  runHook(c10d::GradBucket& bucket) override;

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return result.toTensor();
  }

private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

} // namespace troupe
