#include "troupe/trainers/torch/files/tensor_map.hpp"

#include <sstream>

#include <c10/core/GradMode.h>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

/// Names under one heading of an error.
class name_list {
public:
  explicit name_list(const char* heading) : heading_(heading) {}

  void add(const std::string& name) { append_item(text_, name); }

  /// Appends "; heading: a, b" to *message* unless the list is empty.
  void append_to(std::string& message) const {
    if (!text_.empty())
      message += std::string{"; "} + heading_ + ": " + text_;
  }

private:
  const char* heading_;
  std::string text_;
};

std::string shapes(const at::Tensor& saved, const at::Tensor& target) {
  std::ostringstream out;
  out << " (saved " << saved.sizes() << ", expected " << target.sizes() << ')';
  return out.str();
}

} // namespace

void check_fit(const tensor_map& saved, const tensor_map& target,
               const load_options& options) {
  name_list missing{"missing"};
  name_list unexpected{"unexpected"};
  name_list mismatched{"of another shape"};
  for (const auto& [name, tensor] : target) {
    auto found = saved.find(options.prefix + name);
    if (found == saved.end()) {
      if (options.strict)
        missing.add(name);
    } else if (found->second.sizes() != tensor.sizes()) {
      mismatched.add(name + shapes(found->second, tensor));
    }
  }
  if (options.strict)
    for (const auto& [name, tensor] : saved)
      if (name.starts_with(options.prefix)
          && !target.contains(name.substr(options.prefix.size())))
        unexpected.add(name);
  std::string problems;
  missing.append_to(problems);
  unexpected.append_to(problems);
  mismatched.append_to(problems);
  if (!problems.empty())
    throw train_error{{ec::invalid_argument,
                       "the saved tensors do not fit the model" + problems}};
}

void load_into(const tensor_map& saved, const tensor_map& target,
               const load_options& options) {
  check_fit(saved, target, options);
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : target)
    if (auto found = saved.find(options.prefix + name); found != saved.end())
      tensor.copy_(found->second);
}

} // namespace troupe::internal
