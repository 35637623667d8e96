// What the pack's page code says, in English and Chinese. ComfyUI gives extensions no access to its own translations.
import { app } from "../../../scripts/app.js"

const CHINESE = {
  "Play all": "全部播放",
  "Play all in order": "按顺序全部播放",
  "Play {0}": "播放 {0}",
  "Pause": "暂停",
  "Hear it": "播放",
  "Stop": "停止",
  "Play again": "重新播放",
  "cancelled": "已取消",
  "click to hear": "点击播放",
  "Download": "下载",
  "Position": "播放位置",
  "{0} recordings, {1}": "{0} 段录音，{1}",
  "Switch while it plays: the moment stays.": "播放时切换：位置保持不变。",
  "Blind test": "盲听",
  "Show names": "显示名称",
  "Hide and shuffle the names, and guess": "隐藏并打乱名称，然后猜",
  "Which one is {0}?": "哪一段是 {0}？",
  "This one": "就是它",
  "{0} is {1}": "{0} 是 {1}",
  "Right: it is {0}.": "答对了：是 {0}。",
  "No: it is {0}.": "不对：是 {0}。",
  "{0} of {1} right": "{1} 次猜对 {0} 次",
  "Remove": "删除",
  "Lines: {0}, {1} MB": "共 {0} 句，{1} MB",
  "cannot be played: run the node again (temporary files go when ComfyUI restarts)":
    "无法播放：请重新运行该节点（ComfyUI 重启时会删除临时文件）",
  "Upload a file": "上传文件",
  "The file was not uploaded": "文件未能上传",
  "ran into its limit": "达到长度上限",
  "repeated itself": "出现重复",
  "ended before its text can have been spoken": "文本未读完就结束了",
  "is silent": "没有声音",
  "could not be made": "未能生成",
  "its words are heard otherwise": "听到的词语有出入",
  "does not fit its caption": "超出字幕的时间",
}

/** Return the sentence in the page's language, with ``{0}``, ``{1}``, ... replaced by the values. */
export function say(sentence, ...values) {
  const isChinese = String(app.extensionManager?.setting?.get("Comfy.Locale") ?? "").startsWith("zh")
  const words = (isChinese && CHINESE[sentence]) || sentence
  return words.replace(/\{(\d)\}/g, (_, place) => values[place])
}
