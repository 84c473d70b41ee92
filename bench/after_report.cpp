#include <algorithm>

#include <troupe/train.hpp>

#include "numbers.hpp"
#include "takes.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int ranks = 8;
constexpr int warm_up = 100;
constexpr int reports = 2000;

/// Measures how long after the last rank's call it is called itself.
class delay_callback : public user_callback {
public:
  void after_report(const run_context&, const std::vector<metrics>& values,
                    const std::optional<checkpoint>&) override {
    auto start = now();
    double called = 0;
    for (auto& x : values)
      called = std::max(called, x.at("called").number());
    delays.push_back(start - called);
  }

  std::vector<double> delays;
};

void loop(train_context& context) {
  for (int i = 0; i < warm_up + reports; ++i)
    context.report({{"called", now()}});
}

} // namespace

figure after_report(workplace& place) {
  auto callback = std::make_shared<delay_callback>();
  auto run = place.new_run();
  run.callbacks = {callback};
  data_parallel_trainer{
    loop, {.scaling = {.num_workers = ranks}, .run = std::move(run)}}
    .fit()
    .value_or_throw();
  auto& delays = callback->delays;
  return {quantile({delays.begin() + warm_up, delays.end()}, 0.99) * 1e3,
          std::nullopt};
}

} // namespace troupe::internal::bench
