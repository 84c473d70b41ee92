#pragma once

#include <concepts>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

template <class T>
concept prediction_metric_like =
  std::derived_from<std::remove_cvref_t<T>, prediction_metric>;

/// What the names of a collection's values begin and end with.
struct collection_options {
  std::string prefix;
  std::string postfix;
};

/// Metrics that see the same batches.
///
/// Members with equal state keys share one state and one update; `compute`
/// synchronises all members at once, with at most two collectives.
///
///   multiclass_task digits{10};
///   metric_collection scores{accuracy{digits}, recall{digits}};
class metric_collection {
public:
  metric_collection() = default;

  template <prediction_metric_like... Metrics>
  explicit metric_collection(Metrics&&... members) {
    (add(std::forward<Metrics>(members)), ...);
  }

  metric_collection(const metric_collection&) = delete;
  metric_collection& operator=(const metric_collection&) = delete;
  metric_collection(metric_collection&&) = default;
  metric_collection& operator=(metric_collection&&) = default;

  /// Adds *member* as *key* (its name if empty). Refuses a key twice, and any
  /// member once a batch was seen.
  template <class Metric>
  void add(Metric&& member, std::string key = {}) {
    insert(std::make_unique<std::remove_cvref_t<Metric>>(
             std::forward<Metric>(member)),
           std::move(key));
  }

  /// Names of the values from now on.
  void rename(collection_options options) { options_ = std::move(options); }

  /// Accumulates one batch in all members. If one refuses it, those before it
  /// have counted it already; `forward` is undone as a whole.
  void update(const at::Tensor& preds, const at::Tensor& target);

  /// Accumulates one batch and returns its values alone, of this rank.
  tensor_map forward(const at::Tensor& preds, const at::Tensor& target);

  /// The values over all samples of all ranks by name. A collective.
  tensor_map compute();

  /// `compute()` as a report takes it: a vector becomes `name/0`, `name/1`, ….
  metrics values();

  void reset();

  /// States of all members as `key/state`, those that are shared once for each.
  tensor_map state() const;
  void load_state(const tensor_map& x);

  void synchronize_over(torch_data_plane plane);

  /// The member called *key*, without prefix and postfix.
  prediction_metric& at(const std::string& key);

  std::size_t size() const noexcept { return members_.size(); }

  /// Number of states that are kept apart.
  std::size_t groups() const;

private:
  struct member {
    std::string key;
    std::unique_ptr<prediction_metric> value;
    bool leads; ///< The first of its group does the updates.
  };

  void insert(std::unique_ptr<prediction_metric> x, std::string key);
  std::string full_name(const member& x) const;
  tensor_map named(const std::vector<at::Tensor>& values) const;

  std::vector<member> members_;
  collection_options options_;
  std::optional<torch_data_plane> plane_;
};

} // namespace troupe
