#include "troupe/trainers/torch/loop/loop_callback.hpp"

#include <typeinfo>

#include <c10/util/Type.h>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/loop/epoch_loop.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

std::string loop_callback::state_key() const {
  return c10::demangle(typeid(*this).name());
}

void train_report_callback::on_train_epoch_end(epoch_loop& loop) {
  auto values = loop.epoch_metrics();
  values["epoch"] = loop.current_epoch();
  values["step"] = loop.global_step();
  auto files = loop.context().new_checkpoint();
  loop.save_checkpoint(files.path());
  loop.context().report(std::move(values), std::move(files));
}

void learning_rate_monitor::on_train_epoch_start(epoch_loop& loop) {
  log(loop, schedule_interval::epoch);
}

void learning_rate_monitor::on_train_batch_start(epoch_loop& loop,
                                                 std::int64_t) {
  log(loop, schedule_interval::step);
}

void learning_rate_monitor::log(epoch_loop& loop, schedule_interval now) const {
  const auto& optimizer = loop.optimizer();
  if (now != interval_.value_or(optimizer.schedule().interval))
    return;
  auto name = "lr-" + optimizer.name();
  auto rates = optimizer.lr();
  for (std::size_t i = 0; i < rates.size(); ++i)
    loop.log(rates.size() == 1 ? name : concat(name, "/pg", i + 1), rates[i],
             {.on_step = true, .on_epoch = false});
}

} // namespace troupe
