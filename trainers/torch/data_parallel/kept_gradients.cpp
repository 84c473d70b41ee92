#include "troupe/trainers/torch/data_parallel/kept_gradients.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>

namespace troupe::internal {

namespace {

/// Up to 1024 values all over *x*. A step may leave whole rows or columns as
/// they are (dead units, features that are always zero), so the distance of the
/// values has no factor in common with any size of *x*.
at::Tensor sample_of(const at::Tensor& x) {
  constexpr std::int64_t most = 1024;
  auto values = x.detach();
  if (!values.is_non_overlapping_and_dense())
    values = values.contiguous();
  auto n = values.numel();
  auto distance = std::max<std::int64_t>((n + most - 1) / most, 1);
  while (std::gcd(distance, n) > 1)
    ++distance;
  return values.as_strided({(n + distance - 1) / distance}, {distance});
}

/// Whether bytes of *x* can be compared with those of *y*.
bool is_comparable(const at::Tensor& x, const at::Tensor& y) {
  return x.numel() == y.numel() && x.device() == y.device();
}

bool is_of_kind(const at::Tensor& x, const at::TensorOptions& kind) {
  return x.dtype() == kind.dtype() && x.device() == kind.device();
}

/// Whether all of *values* fit into a narrower type. Of values that training
/// made, one in thousands does.
bool is_narrow(const at::Tensor& values) {
  auto type = values.scalar_type();
  auto fit = [&](at::ScalarType narrower) {
    return values.equal(values.to(narrower).to(type));
  };
  switch (type) {
    case at::kDouble:
      return fit(at::kFloat);
    case at::kFloat:
      return fit(at::kHalf) || fit(at::kBFloat16);
    case at::kHalf:
      return fit(at::kBFloat16);
    default:
      return false;
  }
}

auto holds(const at::Tensor& tensor) {
  return [&tensor](const named_tensor& x) { return x.tensor.is_same(tensor); };
}

} // namespace

void kept_gradients::follow(std::vector<named_tensor> parameters) {
  known_ = changed();
  std::vector<char> kept;
  narrow_.clear();
  for (auto& x : parameters) {
    auto known = std::ranges::find_if(parameters_, holds(x.tensor));
    // No earlier Reducer has seen the gradients of a new parameter.
    kept.push_back(
      known == parameters_.end()
        ? x.tensor.grad().defined()
        : kept_[static_cast<std::size_t>(known - parameters_.begin())]);
    narrow_.push_back(is_narrow(sample_of(x.tensor)));
  }
  auto watches = before_.defined();
  parameters_ = std::move(parameters);
  kept_ = std::move(kept);
  samples_.assign(parameters_.size(), {});
  changes_.reset();
  before_.reset();
  if (watches)
    take_samples();
}

std::string
kept_gradients::left_behind(const model_tensors& model,
                            const std::vector<named_tensor>& averaged) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& x = parameters_[i];
    if (has(i) && std::ranges::none_of(averaged, holds(x.tensor))
        && std::ranges::any_of(model.parameters, holds(x.tensor)))
      return x.name;
  }
  return {};
}

void kept_gradients::note(std::size_t index) {
  kept_[index] = true;
  watch(change_cause::kept);
}

void kept_gradients::watch_failure() {
  watch(change_cause::left);
}

void kept_gradients::note_refusal() {
  refused_ = true;
  watch(change_cause::left);
}

bool kept_gradients::has(std::size_t index) const {
  return kept_[index] && parameters_[index].tensor.grad().defined();
}

void kept_gradients::end() {
  std::ranges::fill(kept_, false);
  if (!before_.defined())
    return;
  if (auto name = of_other_kind(); !known_ && !name.empty())
    known_ = {name, cause_};
  changes_ = differences();
  before_.reset();
}

void kept_gradients::clear() {
  end();
  refused_ = runs_alone_ = false;
}

void kept_gradients::note_difference(std::string name) {
  if (!known_)
    known_ = {std::move(name), change_cause::stepped};
}

void kept_gradients::forget_changes() {
  known_.reset();
  changes_.reset();
  if (before_.defined())
    take_samples();
}

bool kept_gradients::has_gradients() const {
  return std::ranges::any_of(parameters_,
                             [](auto& x) { return has_gradient(x.tensor); });
}

void kept_gradients::note_return(const std::vector<std::size_t>& indices,
                                 bool stepped) {
  // So many different values of a coarse grid are not constants of a layer.
  constexpr std::int64_t enough = 16;
  std::vector<at::Tensor> all;
  std::string name;
  for (auto i : indices) {
    if (narrow_[i] && !stepped)
      continue;
    auto values = sample_of(parameters_[i].tensor);
    if (!is_narrow(values))
      return;
    if (name.empty())
      name = parameters_[i].name;
    all.push_back(values.to(at::kCPU, at::kDouble));
  }
  if (!known_ && !all.empty()
      && std::get<0>(at::_unique2(at::cat(all))).numel() >= enough)
    known_ = {name, change_cause::rounded};
}

std::optional<changed_parameter> kept_gradients::changed() const {
  if (known_)
    return known_;
  auto name = of_other_kind();
  if (name.empty())
    name = name_in(differences());
  if (name.empty())
    return {};
  return changed_parameter{name, cause_};
}

/// Looks for changes from now on, if not already.
void kept_gradients::watch(change_cause cause) {
  if (before_.defined())
    return;
  cause_ = cause;
  take_samples();
}

void kept_gradients::take_samples() {
  auto before = values();
  std::vector<at::TensorOptions> kinds;
  for (auto& x : parameters_)
    kinds.push_back(x.tensor.options());
  // Without memory for one there is neither.
  before_ = std::move(before);
  kinds_ = std::move(kinds);
}

/// A parameter whose type or device changed; empty if there is none.
std::string kept_gradients::of_other_kind() const {
  if (before_.defined())
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (!is_of_kind(parameters_[i].tensor, kinds_[i]))
        return parameters_[i].name;
  return {};
}

/// The samples of all parameters, as bytes: NaN equals itself. Of different
/// types they are compared in a common one, on the device of the first.
at::Tensor kept_gradients::values() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& sample = samples_[i];
    auto& x = parameters_[i].tensor;
    if (!sample.defined() || sample.const_data_ptr() != x.const_data_ptr())
      sample = sample_of(x);
  }
  auto all = samples_;
  for (auto& x : all)
    x = x.to(all.front().device());
  return at::cat(all).view(at::kByte);
}

/// Undefined if there is nothing to compare. Values of another type or on
/// another device have all changed.
at::Tensor kept_gradients::differences() const {
  if (!before_.defined())
    return changes_;
  auto now = values();
  if (!is_comparable(now, before_))
    return at::ones_like(now, at::kBool);
  auto result = now.ne(before_);
  if (!changes_.defined())
    return result;
  return result.logical_or_(is_comparable(result, changes_)
                              ? changes_
                              : changes_.any().to(result.device()));
}

std::string kept_gradients::name_in(const at::Tensor& differences) const {
  if (!differences.defined() || !differences.any().item<bool>())
    return {};
  std::int64_t values = 0;
  for (auto& x : samples_)
    values += x.numel();
  auto first = differences.nonzero()[0].item<std::int64_t>()
               / (differences.numel() / values);
  std::size_t index = 0;
  while (first >= samples_[index].numel())
    first -= samples_[index++].numel();
  return parameters_[index].name;
}

} // namespace troupe::internal
