"""Which names belong to secrets, and which to parts of a model, graph or table."""

from __future__ import annotations

from safe_launch.core.secret_names import LONGEST, is_secret_name
from support.tables import table

SECRETS = """
hub_token token hf_token HF_TOKEN push_to_hub_token use_auth_token api-token accessToken
auth_token GITHUB_TOKEN HUGGING_FACE_HUB_TOKEN wandb_api_key WANDB_API_KEY api_key apikey
openai.api_key AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID password db_password PGPASSWORD
MYSQL_PASSWD client_secret secret my_secret_value credentials Authorization private_key
ssh_passphrase SLURM_JWT SAFE_LAUNCH_SECRET
--wandb_key --kaggle_key kaggle.key KAGGLE_KEY --comet-key openai_key hf_key anthropic_key wandbkey
AZURE_STORAGE_KEY AZURE_OPENAI_KEY AccountKey SharedAccessKey account_key storage_key S3_SECRET_KEY
subscription_key Ocp-Apim-Subscription-Key X-Api-Key signing_key encryption_key license_key ssh_key
OSS_ACCESS_KEY_SECRET COS_SECRET_KEY swanlab_key WANDB_API_KEY_2 HF_TOKEN_2 hf_token2 HF_TOKEN2
--db_pass DB_PASS SMTP_PASS RABBITMQ_DEFAULT_PASS SSHPASS --pass dbpass mysql_pass REDIS_PASS
ES_PASS proxy_pass MY_PROXY_PASS
--pwd db_pwd DB_PWD MYSQL_PWD userPwd mysqlpwd
--cookie session_cookie cookies SESSION_COOKIE sessionid
GITHUB_PAT AZURE_DEVOPS_PAT --github_pat GITLAB_PAT DATABRICKS_PAT SNOWFLAKE_PAT
SLACK_WEBHOOK_URL --webhook_url webhook DISCORD_WEBHOOK --slack-webhook WEBHOOK_URI feishu_webhook
AZURE_STORAGE_CONNECTION_STRING connection_string AZURE_STORAGE_SAS_TOKEN AZURE_STORAGE_SAS
REDIS_AUTH http_auth basic_auth GCP_CREDS aws_creds --otp NPM_TOKEN PYPI_TOKEN bot_token
OSS_SK obs_ak bearer accesskey privatekey secretkey access_token_secret passcode sshpass
WECHAT_BOT_KEY SENDKEY
--voyage_key --fireworks_key ZHIPUAI_KEY CEPH_KEY --ftp_pass --mongo_pwd kaggleKey
jwt_secret session_token id_token AWS_SESSION_TOKEN SENTRY_AUTH_TOKEN telegram_bot_token
"""
OTHERS = """
tokenizer tokenizer_name tokens max_tokens num_tokens pad_token eos_token bos_token unk_token
special_tokens image_token num_token token_id eos_token_id token_type_ids token_level_loss
max_new_tokens TOKENIZERS_PARALLELISM secret_file token_path credentials_file password_file
key text_key key_proj keys PWD SSH_AUTH_SOCK author MASTER_PORT passes learning_rate
OLDPWD --bpe_pad_token --eos_token --pad-token mask_token --image_token prev_token target_token
key_padding_mask embed_tokens model.embed_tokens tokenizer_config token_dropout tokens_per_second
monkey turkey hockey keyboard keypoints hotkey key_value_states past_key_values num_key_value_heads
primary_key foreign_key sort_key group_key cache_key label_key image_key prompt_key metric_key
state_dict_key missing_keys unexpected_keys dataset_key column_key public_key rope_key
--pass_through passthrough bypass compass forward_pass backward_pass num_pass first_pass two_pass
post_grad_pass joint_custom_pre_pass passed password_length secret_name token_file token_type
is_training_pass passive pat patience path name_pat file_pat exclude_pat pattern patch pathlib
cookie_file cookie_name author authors authority use_auth auth_type signature
OMP_NUM_THREADS webhook_id webhook_timeout webhook_enabled reserved_special_token_5 token_0
tokenize detokenize skip sketch task risk monk asks took api_url base_url accessible
credential_type asset gasket masks basket pwd_dir key_bits n_keys keystone
save_pass loss_pass best_pass boi_token sot_token speaker_token action_token newline_token ctx_token
sequence_length seq_key sk ak optimizer adopt
"""


@table("name", SECRETS.split())
def test_names_of_secrets(name: str) -> None:
    """Options, variables, file keys and headers in any spelling."""
    assert is_secret_name(name)


@table("name", OTHERS.split())
def test_other_names(name: str) -> None:
    """A model's tokens, places, column keys, graph passes and patterns."""
    assert not is_secret_name(name)


def test_a_text_is_no_name() -> None:
    """Long texts aren't names and would be slow to check."""
    assert not is_secret_name("secret_" * LONGEST)
