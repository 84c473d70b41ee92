#include "troupe/trainers/torch/metrics/metric_error.hpp"

#include <c10/util/Exception.h>

namespace troupe {

void refuse_metric(const std::string& name, const std::string& sentence) {
  throw train_error{{ec::invalid_argument, name + ": " + sentence}};
}

void warn_metric(const std::string& name, const std::string& sentence) {
  TORCH_WARN(name, ": ", sentence);
}

} // namespace troupe
