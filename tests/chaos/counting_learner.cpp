// A model that counts: its value after any number of faults is known in
// advance.

#include "trainee.hpp"

namespace troupe::chaos {

namespace {

class counting_learner : public learner {
public:
  std::uint64_t train(const model& before, std::uint64_t data) override {
    auto step = before.step + 1;
    return mixed(before.state ^ data ^ (step * 0x2545f4914f6cdd1d));
  }
};

} // namespace

std::unique_ptr<learner> make_learner(train_context&, const plan&) {
  return std::make_unique<counting_learner>();
}

result fit(const plan& x, train_options options) {
  return data_parallel_trainer{loop, x, std::move(options)}.fit();
}

} // namespace troupe::chaos
