#pragma once

// All that a program with LibTorch needs to train.

#include "troupe/train.hpp"
#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/data/fashion_mnist.hpp"
#include "troupe/trainers/torch/data/first_samples.hpp"
#include "troupe/trainers/torch/data/prepare_data_loader.hpp"
#include "troupe/trainers/torch/data_parallel/prepare_model.hpp"
#include "troupe/trainers/torch/files/pt.hpp"
#include "troupe/trainers/torch/files/safetensors.hpp"
#include "troupe/trainers/torch/loop/early_stopping.hpp"
#include "troupe/trainers/torch/loop/epoch_loop.hpp"
#include "troupe/trainers/torch/loop/learning_rate_monitor.hpp"
#include "troupe/trainers/torch/loop/train_report_callback.hpp"
#include "troupe/trainers/torch/loop/training_module.hpp"
#include "troupe/trainers/torch/optim/clip_grad_norm.hpp"
#include "troupe/trainers/torch/optim/fused_adam.hpp"
#include "troupe/trainers/torch/optim/fused_adamw.hpp"
#include "troupe/trainers/torch/optim/fused_sgd.hpp"
#include "troupe/trainers/torch/reproducibility.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"
