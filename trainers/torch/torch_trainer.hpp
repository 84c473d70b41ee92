#pragma once

#include <concepts>
#include <utility>

#include "troupe/trainers/fit.hpp"
#include "troupe/trainers/torch/torch_backend.hpp"

namespace caf {

class actor_system;

} // namespace caf

namespace troupe {

class run_handle;

/// How a `torch_trainer` runs its loop.
struct torch_options {
  scaling_config scaling;
  run_config run;
  torch_config torch;
};

/// A `data_parallel_trainer` whose ranks have a c10d group and a device: what
/// `prepare_model` and `prepare_data_loader` work with.
class torch_trainer {
public:
  template <class F>
  explicit torch_trainer(F loop, torch_options options = {})
    : torch_trainer(std::move(loop), no_config{}, std::move(options)) {}

  template <class F, class Config>
    requires(!std::same_as<Config, torch_options>)
  torch_trainer(F loop, const Config& config, torch_options options = {})
    : request_{std::move(options.scaling), std::move(options.run),
               train_loop::make(std::move(loop), torch_backend{options.torch},
                                config)} {}

  /// Runs the loop and waits for the end. Never throws: what went wrong is in
  /// the result, beside all that was kept.
  result fit() const noexcept { return troupe::fit(request_); }

  /// Starts the run in *system*, which must load CAF's middleman and outlive
  /// the handle, and returns at once. Include "troupe/actors.hpp" to call it.
  expected<run_handle> start(caf::actor_system& system) const;

private:
  run_request request_;
};

} // namespace troupe
