#include "troupe/trainers/torch/metrics/metric.hpp"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "troupe/runtime/counted.hpp"
#include "troupe/trainers/torch/metrics/metric_synchronization.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Where `state()` keeps the number of updates.
constexpr auto updates_key = "updates";

/// Throws if *value* cannot be one of *state*. A sum whose initial value is 0-d
/// may have any shape: updates give it that of the inputs.
void check_loaded(const std::string& name, const metric_state& state,
                  const at::Tensor& value) {
  auto& like = state.initial;
  if (value.scalar_type() != like.scalar_type())
    refuse_metric(name, "the state '", state.name, "' to load has type ",
                  value.scalar_type(), ", not ", like.scalar_type());
  auto fits = state.reduction == metric_reduction::cat
                ? value.dim() > 0
                : like.dim() == 0 || value.sizes() == like.sizes();
  if (!fits)
    refuse_metric(name, "the state '", state.name, "' to load has shape ",
                  value.sizes(), ", not ", like.sizes());
}

} // namespace

metric::metric() : states_(std::make_shared<metric_states>()) {}

metric::metric(const metric& other)
  : states_(std::make_shared<metric_states>(*other.states_)),
    computed_(other.computed_), computed_revision_(other.computed_revision_),
    plane_(other.plane_), warned_(other.warned_) {}

metric& metric::operator=(const metric& other) {
  if (this != &other) {
    states_ = std::make_shared<metric_states>(*other.states_);
    computed_ = other.computed_;
    computed_revision_ = other.computed_revision_;
    plane_ = other.plane_;
    warned_ = other.warned_;
  }
  return *this;
}

at::Tensor metric::compute() {
  return metric_synchronization{{this}, plane_}.values().front();
}

double metric::value() {
  auto x = compute();
  if (x.numel() != 1)
    refuse_metric(name(), "value() needs a metric with one value, this has ",
                  x.numel());
  return x.item<double>();
}

void metric::reset() {
  states_->reset();
  computed_ = at::Tensor{};
}

void metric::merge(const metric& other) {
  if (other.name() != name() || other.state_key() != state_key())
    refuse_metric(name(), "cannot merge ", other.name(),
                  ": another metric or other options");
  if (other.updates() == 0)
    return;
  at::NoGradGuard no_grad;
  auto from = *other.states_;
  if (updates() == 0)
    states_->to(from.device());
  from.to(states_->device());
  states_->add(from, [this](auto& x, auto& y) { combine(x, y); });
}

tensor_map metric::state() const {
  tensor_map result;
  for (auto& x : states_->items)
    result.emplace(x.name, unshared(x.whole()));
  result.emplace(updates_key, at::scalar_tensor(updates(), at::kLong));
  return result;
}

void metric::load_state(const tensor_map& x) {
  if (x.size() != states_->items.size() + 1)
    refuse_metric(name(), "the state to load has ", counted(x.size(), "tensor"),
                  ", not ", states_->items.size() + 1);
  auto known = [&](const std::string& key) {
    if (!x.contains(key))
      refuse_metric(name(), "the state to load has no '", key, "'");
    return x.at(key);
  };
  auto loaded = *states_;
  for (auto& item : loaded.items) {
    auto value = known(item.name);
    check_loaded(name(), item, value);
    item.assign(value.detach().to(state_device(), value.scalar_type(), false,
                                  /*copy=*/true));
  }
  loaded.updates = known(updates_key).item<std::int64_t>();
  ++loaded.revision;
  *states_ = std::move(loaded);
}

void metric::to(at::Device device) {
  states_->to(device);
  ++states_->revision;
}

void metric::synchronize_over(torch_data_plane plane) {
  plane_ = std::move(plane);
  ++states_->revision;
}

std::size_t metric::add_state(std::string name, metric_reduction reduction,
                              at::Tensor initial) {
  metric_state x{std::move(name), reduction, std::move(initial), {}, {}};
  x.reset();
  states_->items.push_back(std::move(x));
  return states_->items.size() - 1;
}

std::size_t metric::add_sum(std::string name) {
  return add_state(std::move(name), metric_reduction::sum,
                   at::zeros({}, at::kDouble));
}

std::size_t metric::add_count(std::string name) {
  return add_state(std::move(name), metric_reduction::sum,
                   at::zeros({}, at::kLong));
}

at::Tensor& metric::state(std::size_t number) {
  return states_->items[number].value;
}

const at::Tensor& metric::state(std::size_t number) const {
  return states_->items[number].value;
}

void metric::append(std::size_t number, at::Tensor part) {
  if (part.numel() == 0)
    return;
  auto own = unshared(std::move(part)).detach();
  states_->items[number].parts.push_back(std::move(own));
}

void metric::replace(std::size_t number, at::Tensor whole) {
  states_->items[number].assign(std::move(whole));
}

at::Tensor metric::joined(std::size_t number) const {
  return states_->items[number].whole();
}

void metric::combine(metric_states& into, const metric_states& from) const {
  combine_by_reduction(into, from);
}

void metric::extend(metric_states& into, const metric_states& batch) const {
  combine(into, batch);
}

metric::batch_guard::batch_guard(metric& self)
  : self_(self), before_(*self.states_) {
  self_.states_->reset();
}

metric::batch_guard::~batch_guard() {
  // A new revision invalidates what was computed.
  before_.revision = self_.states_->revision + 1;
  *self_.states_ = std::move(before_);
}

void metric::batch_guard::commit() {
  at::NoGradGuard no_grad;
  before_.to(self_.states_->device());
  before_.add(*self_.states_, [this](auto& x, auto& y) { self_.extend(x, y); });
}

at::Tensor metric::own_result() const {
  at::NoGradGuard no_grad;
  return unshared(result());
}

void value_metric::update(const at::Tensor& values) {
  accumulate(values.device(), [&] { add(values); });
}

void value_metric::update(double value) {
  update(as_tensor(value));
}

at::Tensor value_metric::forward(const at::Tensor& values) {
  return batch_value([&] { update(values); });
}

at::Tensor value_metric::forward(double value) {
  return batch_value([&] { update(value); });
}

at::Tensor value_metric::as_tensor(double x) const {
  return at::full({}, x, at::TensorOptions{state_device()}.dtype(at::kDouble));
}

void prediction_metric::update(const at::Tensor& preds,
                               const at::Tensor& target) {
  if (preds.device() != target.device())
    refuse_metric(name(), "predictions are on ", preds.device(),
                  ", the target is on ", target.device());
  if (preds.numel() == 0 && target.numel() == 0)
    return;
  accumulate(preds.device(), [&] { add(preds, target); });
}

at::Tensor prediction_metric::forward(const at::Tensor& preds,
                                      const at::Tensor& target) {
  return batch_value([&] { update(preds, target); });
}

void prediction_metric::check_same_shape(const at::Tensor& preds,
                                         const at::Tensor& target) const {
  if (preds.sizes() != target.sizes())
    refuse_metric(name(), "predictions have shape ", preds.sizes(),
                  ", the target has shape ", target.sizes());
}

void warn_metric(const std::string& name, const std::string& sentence) {
  TORCH_WARN(name, ": ", sentence);
}

at::Tensor widened(const std::string& name, const at::Tensor& x) {
  if (x.is_complex())
    refuse_metric(name, "takes real numbers, not ", x.scalar_type());
  return x.to(at::kDouble);
}

} // namespace troupe
