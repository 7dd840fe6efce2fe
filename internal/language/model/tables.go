package model

// Parts of tables of tensors that several architectures share.

// plainOuter lists the embedding, the last norm, and the output matrix, in whose place comes the embedding where there
// is none.
func plainOuter(c *Config, w *weights) []spec {
	return []spec{
		matrix("token_embd.weight", c.Vocab, c.Hidden, required, &w.embedding),
		vector("output_norm.weight", c.Hidden, required, &w.outputNorm),
		matrix("output.weight", c.Vocab, c.Hidden, optional, &w.output),
	}
}

// layerNormOuter lists the same with a bias of the last norm.
func layerNormOuter(c *Config, w *weights) []spec {
	return append(plainOuter(c, w), vector("output_norm.bias", c.Hidden, required, &w.outputNormBias))
}

// projections lists the matrices around attention. bias is the need of those of q, k and v; llama's converter writes
// one of the output too where a model has it.
func projections(c *Config, l *layer, bias need) []spec {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return []spec{
		matrix("attn_q.weight", q, c.Hidden, required, &l.q),
		matrix("attn_k.weight", kv, c.Hidden, required, &l.k),
		matrix("attn_v.weight", kv, c.Hidden, required, &l.v),
		vector("attn_q.bias", q, bias, &l.qBias),
		vector("attn_k.bias", kv, bias, &l.kBias),
		vector("attn_v.bias", kv, bias, &l.vBias),
		matrix("attn_output.weight", c.Hidden, q, required, &l.output),
		vector("attn_output.bias", c.Hidden, min(bias, optional), &l.outputBias),
	}
}

// joinedProjections lists the same where one tensor holds the rows of q, k and v.
func joinedProjections(c *Config, l *layer, bias need) []spec {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	all := q + 2*kv
	return []spec{
		matrix("attn_qkv.weight", q, c.Hidden, required, &l.q).part(0, all),
		matrix("attn_qkv.weight", kv, c.Hidden, required, &l.k).part(q, all),
		matrix("attn_qkv.weight", kv, c.Hidden, required, &l.v).part(q+kv, all),
		vector("attn_qkv.bias", q, bias, &l.qBias).part(0, all),
		vector("attn_qkv.bias", kv, bias, &l.kBias).part(q, all),
		vector("attn_qkv.bias", kv, bias, &l.vBias).part(q+kv, all),
		matrix("attn_output.weight", c.Hidden, q, required, &l.output),
		vector("attn_output.bias", c.Hidden, bias, &l.outputBias),
	}
}

// gatedFeedForward lists the matrices of a gated unit.
func gatedFeedForward(c *Config, l *layer) []spec {
	return []spec{
		matrix("ffn_gate.weight", c.FeedForward, c.Hidden, required, &l.gate),
		matrix("ffn_up.weight", c.FeedForward, c.Hidden, required, &l.up),
		matrix("ffn_down.weight", c.Hidden, c.FeedForward, required, &l.down),
	}
}

// feedForwardBiases lists the biases of a gated unit, which few models have.
func feedForwardBiases(c *Config, l *layer) []spec {
	return []spec{
		vector("ffn_gate.bias", c.FeedForward, optional, &l.gateBias),
		vector("ffn_up.bias", c.FeedForward, optional, &l.upBias),
		vector("ffn_down.bias", c.Hidden, optional, &l.downBias),
	}
}

// joinedFeedForward lists the same where one tensor holds the rows of the gate and then those of up.
func joinedFeedForward(c *Config, l *layer) []spec {
	return []spec{
		matrix("ffn_up.weight", c.FeedForward, c.Hidden, required, &l.gate).part(0, 2*c.FeedForward),
		matrix("ffn_up.weight", c.FeedForward, c.Hidden, required, &l.up).part(c.FeedForward, 2*c.FeedForward),
		matrix("ffn_down.weight", c.Hidden, c.FeedForward, required, &l.down),
	}
}
