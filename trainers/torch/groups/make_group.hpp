#pragma once

#include <memory>

#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/groups/torch_config.hpp"

namespace troupe::internal {

/// Builds the data plane of this rank: its device and its group over the
/// backend that *config* names. Every rank of the attempt calls it once, before
/// the loop. With one rank the group is nullptr.
///
/// While the result exists, the abort of the attempt (`rank_link::on_abort`)
/// ends every waiting collective at once with the link's error. Releasing it
/// takes bounded time, even if peers hang.
///
/// Throws `train_error`: `ec::unsupported` names what this build or host lacks
/// for the backend, `ec::timeout` the missing ranks.
std::shared_ptr<torch_data_plane> make_group(train_context& context,
                                             const torch_config& config);

} // namespace troupe::internal
