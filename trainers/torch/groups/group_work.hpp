#pragma once

#include <atomic>
#include <exception>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace troupe {

/// What a collective of our groups returns: completed by hand, once, from any
/// thread. Its future holds the output tensors, as a list or a list of lists,
/// in the shape that Gloo's futures have.
class group_work : public c10d::Work {
public:
  /// *outputs* are what the collective writes to.
  group_work(int rank, c10d::OpType type,
             std::vector<std::vector<at::Tensor>> outputs,
             std::uint64_t sequence, std::chrono::milliseconds timeout);

  /// Both return false if the work was completed before.
  bool succeed();
  bool fail(std::exception_ptr reason);

  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  /// Overrides what newer c10d::Work declare.
  std::chrono::milliseconds getTimeout() const { return timeout_; }

private:
  std::vector<std::vector<at::Tensor>> outputs_;
  std::uint64_t sequence_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> done_{false};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace troupe
