#include "troupe/trainers/torch/loop/train_report_callback.hpp"

#include "troupe/trainers/torch/loop/epoch_loop.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

void train_report_callback::on_train_epoch_end(epoch_loop& loop) {
  auto values = loop.callback_metrics();
  values["epoch"] = loop.current_epoch();
  values["step"] = loop.global_step();
  auto files = loop.context().new_checkpoint();
  loop.save_checkpoint(files.path());
  loop.context().report(std::move(values), std::move(files));
}

} // namespace troupe
