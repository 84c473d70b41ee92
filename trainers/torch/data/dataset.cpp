#include "troupe/trainers/torch/data/dataset.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include <c10/util/StringUtil.h>

#include "troupe/runtime/counted.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe::internal {

namespace {

/// More indices do not make a message clearer.
constexpr std::size_t named_indices = 16;

std::string describe(std::span<const std::int64_t> indices) {
  if (indices.size() == 1)
    return c10::str("sample ", indices.front());
  std::string result = "a batch of samples";
  for (auto index : indices.first(std::min(indices.size(), named_indices)))
    result += c10::str(' ', index);
  return indices.size() > named_indices ? result + " ..." : result;
}

/// LibTorch adds the C++ stack to its messages: the nested exception has it.
std::string without_stack(const std::string& what) {
  return what.substr(0, what.find("\nException raised from "));
}

} // namespace

void throw_wrong_rows(std::int64_t samples) {
  throw_invalid_argument(
    "the batch has no tensor with ", counted(samples, "row"),
    ", one for each sample (check_rows of the loader's options can be turned "
    "off)");
}

void throw_nested_error(const std::string& what) {
  auto wrapped = [&](const std::string& why) {
    return train_error{{ec::invalid_argument, what + ": " + why}};
  };
  try {
    throw;
  } catch (const run_stopped&) {
    throw;
  } catch (const std::exception& x) {
    std::throw_with_nested(wrapped(without_stack(x.what())));
  } catch (...) {
    std::throw_with_nested(wrapped("an exception of unknown type"));
  }
}

void throw_dataset_error(std::span<const std::int64_t> indices) {
  throw_nested_error("the dataset failed at " + describe(indices));
}

} // namespace troupe::internal
