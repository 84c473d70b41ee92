#include "troupe/trainers/torch/groups/group_work.hpp"

#include <algorithm>

namespace troupe {

namespace {

c10::intrusive_ptr<c10::ivalue::Future>
make_future(const std::vector<std::vector<at::Tensor>>& outputs) {
  auto list = c10::ListType::create(c10::TensorType::get());
  std::vector<c10::Device> devices; // Ones that the future orders streams on.
  for (auto& tensors : outputs)
    for (auto& tensor : tensors)
      if (tensor.is_cuda()
          && std::find(devices.begin(), devices.end(), tensor.device())
               == devices.end())
        devices.push_back(tensor.device());
  return c10::make_intrusive<c10::ivalue::Future>(
    outputs.size() > 1 ? c10::TypePtr{c10::ListType::create(list)}
                       : c10::TypePtr{list},
    std::move(devices));
}

} // namespace

group_work::group_work(int rank, c10d::OpType type,
                       std::vector<std::vector<at::Tensor>> outputs,
                       std::uint64_t sequence,
                       std::chrono::milliseconds timeout)
  : c10d::Work(rank, type), outputs_(std::move(outputs)), sequence_(sequence),
    timeout_(timeout), future_(make_future(outputs_)) {}

bool group_work::succeed() {
  if (done_.exchange(true))
    return false;
  if (outputs_.size() > 1)
    future_->markCompleted(c10::IValue{outputs_});
  else if (outputs_.size() == 1)
    future_->markCompleted(c10::IValue{outputs_.front()});
  else
    future_->markCompleted(c10::IValue{std::vector<at::Tensor>{}});
  finish();
  return true;
}

bool group_work::fail(std::exception_ptr reason) {
  if (done_.exchange(true))
    return false;
  future_->setError(reason);
  finish(std::move(reason));
  return true;
}

std::vector<at::Tensor> group_work::result() {
  std::vector<at::Tensor> all;
  for (auto& tensors : outputs_)
    all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> group_work::getFuture() {
  return future_;
}

} // namespace troupe
