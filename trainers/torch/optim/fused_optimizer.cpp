#include "troupe/trainers/torch/optim/fused_optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Why no fused kernel can update *x*; empty if one can.
std::string objection(const at::Tensor& x) {
  if (!x.defined())
    return "is undefined";
  if (!x.is_leaf())
    return "is the result of an operation";
  if (!at::isFloatingType(x.scalar_type()))
    return "is not a tensor of floating-point numbers";
  if (!x.is_non_overlapping_and_dense())
    return "does not own dense memory";
  return "";
}

/// Names of what is kept per parameter under *options*.
template <class Options>
std::vector<std::string> slot_names(const Options& options) {
  if constexpr (requires { options.betas; }) {
    std::vector<std::string> result{adam_slot::step, adam_slot::exp_avg,
                                    adam_slot::exp_avg_sq};
    if (options.amsgrad)
      result.push_back(adam_slot::max_exp_avg_sq);
    return result;
  } else {
    if (options.momentum == 0)
      return {};
    return {sgd_slot::momentum_buffer};
  }
}

/// Calls *f(name, value)* with each option of a group, a double or a bool.
template <class Options, class F>
void for_each_option(Options& x, F f) {
  f("lr", x.lr);
  if constexpr (requires { x.betas; }) {
    f("beta1", x.betas.first);
    f("beta2", x.betas.second);
    f("eps", x.eps);
    f("weight_decay", x.weight_decay);
    f("amsgrad", x.amsgrad);
  } else {
    f("momentum", x.momentum);
    f("dampening", x.dampening);
    f("weight_decay", x.weight_decay);
    f("nesterov", x.nesterov);
  }
  f("maximize", x.maximize);
}

/// Throws `train_error` for an option that LibTorch's optimizers refuse, too,
/// and for a NaN.
template <class Options>
void check_options(Options& options) {
  for_each_option(options, [](const std::string& name, auto value) {
    if constexpr (std::is_same_v<decltype(value), double>) {
      auto is_beta = name.starts_with("beta");
      if (name == "dampening" ? !std::isnan(value)
                              : value >= 0 && (!is_beta || value < 1))
        return;
      throw_invalid_argument("an optimizer's ", name, " must be ",
                             (name == "dampening" ? "a number"
                              : is_beta           ? "at least 0 and less than 1"
                                                  : "at least 0"),
                             ", got ", value);
    }
  });
}

std::string option_name(std::size_t group, const char* option) {
  return concat("group.", group, '.', option);
}

/// *gradient* in the memory layout and data type of *parameter*: the kernels
/// walk through both as flat memory.
at::Tensor laid_out_as(const at::Tensor& parameter,
                       const at::Tensor& gradient) {
  if (gradient.strides() == parameter.strides()
      && gradient.scalar_type() == parameter.scalar_type())
    return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

/// Finds the tensors of a saved state by name, and collects what does not fit.
class state_reader {
public:
  state_reader(const tensor_map& saved, const std::string& prefix)
    : saved_(saved), prefix_(prefix) {}

  /// Null if there is none.
  const at::Tensor* find(const std::string& name) {
    auto found = saved_.find(prefix_ + name);
    if (found == saved_.end())
      return nullptr;
    ++used_;
    return &found->second;
  }

  void complain(const std::string& name, const std::string& why) {
    problems_ += concat("; ", prefix_, name, ' ', why);
  }

  bool fits() const { return problems_.empty(); }

  /// Throws `train_error` for all complaints, and for tensors that were not
  /// looked for.
  void finish() {
    auto given = std::ranges::count_if(saved_, [&](const auto& item) {
      return item.first.starts_with(prefix_);
    });
    if (given != used_)
      complain("*", "has " + counted(given - used_, "tensor")
                      + " that this optimizer does not know");
    if (!fits())
      throw_invalid_argument("the state of an optimizer does not fit"
                             + problems_);
  }

private:
  const tensor_map& saved_;
  const std::string& prefix_;
  std::string problems_;
  std::ptrdiff_t used_ = 0;
};

/// Reads the options of group *group*.
template <class Options>
void read_options(state_reader& from, std::size_t group, Options& options) {
  for_each_option(options, [&](const char* option, auto& value) {
    auto name = option_name(group, option);
    const auto* x = from.find(name);
    if (x && x->numel() == 1)
      value = x->item().template to<std::remove_reference_t<decltype(value)>>();
    else if (x)
      from.complain(name, "is not a single number");
    else if (option == std::string_view{"lr"})
      from.complain(name, "is missing"); // of others older states have none
  });
}

/// Copies of what *from* has, of *names*, for parameter number *index*.
tensor_map read_slot(state_reader& from, std::size_t index,
                     const std::vector<std::string>& names,
                     const at::Tensor& parameter) {
  tensor_map result;
  auto stem = concat("state.", index, '.');
  for (const auto& name : names) {
    const auto* value = from.find(stem + name);
    if (!value)
      continue;
    auto copy = name == adam_slot::step
                  ? at::zeros({}, parameter.options().dtype(at::kFloat))
                  : at::empty_like(parameter);
    if (value->sizes() == copy.sizes())
      result[name] = copy.detach().copy_(*value);
    else
      from.complain(stem + name, "has another shape than its parameter");
  }
  if (from.fits() && !result.empty() && result.size() != names.size())
    from.complain(stem + "*", "is incomplete");
  return result;
}

} // namespace

template <class Options>
fused_optimizer<Options>::fused_optimizer(std::vector<group_type> groups)
  : groups_(std::move(groups)) {
  std::unordered_set<const void*> seen;
  std::size_t index = 0;
  for (auto& group : groups_) {
    check_options(group.options);
    for (const auto& parameter : group.parameters) {
      auto why = objection(parameter);
      if (why.empty() && !seen.insert(parameter.unsafeGetTensorImpl()).second)
        why = "appears twice";
      if (!why.empty())
        throw_invalid_argument("parameter ", index, " of an optimizer ", why);
      ++index;
    }
  }
  if (index == 0)
    throw_invalid_argument("an optimizer was given no parameters");
  slots_.resize(index);
}

template <class Options>
void fused_optimizer<Options>::zero_grad(bool set_to_none) {
  if (set_to_none) {
    for (const auto& group : groups_)
      for (const auto& parameter : group.parameters)
        parameter.mutable_grad().reset();
    return;
  }
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> dense;
  for (const auto& group : groups_) {
    for (const auto& parameter : group.parameters) {
      auto& gradient = parameter.mutable_grad();
      if (!gradient.defined())
        continue;
      if (gradient.grad_fn())
        gradient = gradient.detach(); // shares the memory
      if (gradient.is_sparse())
        gradient.zero_();
      else
        dense.push_back(gradient);
    }
  }
  if (!dense.empty())
    at::_foreach_zero_(dense);
}

template <class Options>
void fused_optimizer<Options>::set_lr(double lr) {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    set_lr(i, lr);
}

template <class Options>
void fused_optimizer<Options>::set_lr(std::size_t group, double lr) {
  auto options = groups_.at(group).options;
  options.lr = lr;
  check_options(options);
  groups_[group].options = options;
}

template <class Options>
auto fused_optimizer<Options>::due(std::size_t group) -> std::vector<work> {
  std::size_t index = 0;
  for (std::size_t i = 0; i < group; ++i)
    index += groups_[i].parameters.size();
  std::vector<work> result;
  auto bin = [&](const at::Tensor& x) -> work& {
    for (auto& y : result)
      if (y.parameters.front().device() == x.device()
          && y.parameters.front().scalar_type() == x.scalar_type())
        return y;
    return result.emplace_back();
  };
  for (const auto& parameter : groups_[group].parameters) {
    auto* slot = &slots_[index++];
    const auto& gradient = parameter.grad();
    if (!parameter.requires_grad() || !gradient.defined())
      continue;
    if (gradient.is_sparse())
      throw_invalid_argument(
        "parameter ", index - 1,
        " has a sparse gradient, which the fused optimizers do not "
        "support: make the embedding dense");
    auto& x = bin(parameter);
    x.parameters.push_back(parameter);
    x.gradients.push_back(laid_out_as(parameter, gradient));
    x.slots.push_back(slot);
  }
  return result;
}

template <class Options>
tensor_map fused_optimizer<Options>::state(const std::string& prefix) const {
  tensor_map result;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for_each_option(groups_[g].options, [&](const char* name, auto value) {
      result[prefix + option_name(g, name)] = at::scalar_tensor(
        value, std::is_same_v<decltype(value), bool> ? at::kBool : at::kDouble);
    });
  for (std::size_t i = 0; i < slots_.size(); ++i)
    for (const auto& [name, value] : slots_[i])
      result[concat(prefix, "state.", i, '.', name)] = value;
  return result;
}

template <class Options>
void fused_optimizer<Options>::load_state(const tensor_map& saved,
                                          const std::string& prefix) {
  const c10::NoGradGuard no_grad;
  state_reader from{saved, prefix};
  std::vector<Options> options;
  std::vector<slot> slots;
  for (const auto& group : groups_) {
    options.push_back(group.options);
    read_options(from, options.size() - 1, options.back());
    auto names = slot_names(options.back());
    for (const auto& parameter : group.parameters)
      slots.push_back(read_slot(from, slots.size(), names, parameter));
  }
  from.finish();
  for (std::size_t g = 0; g < groups_.size(); ++g)
    groups_[g].options = options[g];
  slots_ = std::move(slots);
}

template class fused_optimizer<adam_options>;
template class fused_optimizer<adamw_options>;
template class fused_optimizer<sgd_options>;

} // namespace troupe
