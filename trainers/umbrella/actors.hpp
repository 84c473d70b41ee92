#pragma once

// For programs with their own actor systems: a run as actors.

#include "troupe/actors/callback_actor.hpp"
#include "troupe/actors/protocol/error_code.hpp"
#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/published_socket.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/train.hpp"
#include "troupe/trainers/rank_mailbox.hpp"
#include "troupe/trainers/run_handle.hpp"
#include "troupe/trainers/sweep/sweep_handle.hpp"
