#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/torch/metrics/metric.hpp"

namespace troupe {

template <class T>
concept prediction_metric_like =
  std::derived_from<std::remove_cvref_t<T>, prediction_metric>;

/// Added to the names of a collection's values: prefix + key + postfix.
struct collection_options {
  std::string prefix;
  std::string postfix;
};

/// Metrics of the same predictions and targets.
///
/// Members with equal state keys share one state and one update; `compute`
/// synchronizes all members at once, with at most two collectives. Invalid
/// arguments throw `train_error` (`ec::invalid_argument`).
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

  /// Adds *member* as *key*, by default its name. Throws if the key is taken or
  /// a batch was accumulated already.
  template <class Metric>
  void add(Metric&& member, std::string key = {}) {
    insert(std::make_unique<std::remove_cvref_t<Metric>>(
             std::forward<Metric>(member)),
           std::move(key));
  }

  /// Sets the prefix and postfix of the values' names.
  void rename(collection_options options) { options_ = std::move(options); }

  /// Accumulates one batch in all members. If one throws, those before it have
  /// counted the batch; `forward` is all or nothing.
  void update(const at::Tensor& preds, const at::Tensor& target);

  /// Accumulates one batch and returns its values on this rank only, by name.
  tensor_map forward(const at::Tensor& preds, const at::Tensor& target);

  /// The values over all samples of all ranks, by name. A collective.
  tensor_map compute();

  /// `compute()` as a report takes it; a vector becomes `name/0`, `name/1`, ….
  metrics values();

  void reset();

  /// Most updates of a member on this rank since its last reset.
  std::int64_t updates() const noexcept;

  /// The states of all members as `key/state`, shared ones once per member.
  tensor_map state() const;

  /// Replaces the states by *x*, a `state()` of such a collection.
  void load_state(const tensor_map& x);

  /// From now on synchronizes over *plane* instead of the train loop's group.
  void synchronize_over(torch_data_plane plane);

  /// The member *key*, without prefix and postfix. Throws if there is none.
  prediction_metric& at(const std::string& key);

  std::size_t size() const noexcept { return members_.size(); }

private:
  struct member {
    std::string key;
    std::unique_ptr<prediction_metric> value;
    bool leads; // The first member of each state does the updates.
  };

  void insert(std::unique_ptr<prediction_metric> x, std::string key);
  std::string full_name(const member& x) const;
  tensor_map named(const std::vector<at::Tensor>& values) const;

  std::vector<member> members_;
  collection_options options_;
  std::optional<torch_data_plane> plane_;
};

} // namespace troupe
