#include "troupe/actors/callback_runner.hpp"

namespace troupe {

namespace {

callback_done done(callback_outcome x) {
  callback_done answer{
    std::chrono::duration<double>(x.spent).count(), x.abort, {}, {}, {}};
  for (auto& error : x.errors)
    answer.failures.push_back(std::move(error));
  answer.times = std::move(x.times);
  return answer;
}

} // namespace

user_callback_actor::behavior_type
callback_runner(user_callback_actor::stateful_pointer<run_context> self,
                user_callback_args args) {
  auto& run = self->state;
  return {
    [&run, args](const before_run& x) {
      run = x.run;
      return done(args.callbacks->before_run(run));
    },
    [&run, args](const after_report& x) {
      run.attempt = x.attempt;
      run.world_size = static_cast<int>(x.values.size());
      run.report_index = x.index;
      std::optional<checkpoint> data;
      if (x.checkpoint)
        data = checkpoint::from_directory(*x.checkpoint);
      return done(args.callbacks->after_report(run, x.values, data));
    },
    [&run, args](const after_exception& x) {
      run.attempt = x.attempt;
      return done(args.callbacks->after_exception(run, x.ranks));
    },
    [&run, args](const after_run& x) {
      return done(args.callbacks->after_run(run, x.outcome));
    },
  };
}

} // namespace troupe
